import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Stands in a line again and again with Curator: ADDRESS PATH lock|shared ROUNDS. Prints for each hold what it was, the
 * sequence of its node, and when it began and ended, by the monotonic clock in nanoseconds.
 */
public final class CuratorContender {
    // A wait that reaches this has failed.
    private static final long LIMIT_S = 60;

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String path = arguments[1];
        String what = arguments[2];
        int rounds = Integer.parseInt(arguments[3]);
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, new RetryOneTime(100))) {
            client.start();
            if (!client.blockUntilConnected(10, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no connection");
            }
            Mutex mutex = new Mutex(client, path);
            Writer writer = new Writer(client, path);
            Reader reader = new Reader(client, path, writer);
            for (int round = 0; round < rounds; round++) {
                if (what.equals("lock")) {
                    acquire(mutex);
                    long entered = work();
                    String node = mutex.getLockPath();
                    print("lock", node, entered, System.nanoTime());
                    mutex.release();
                } else if (round % 3 == 0) {
                    acquire(writer);
                    long entered = work();
                    String node = writer.getLockPath();
                    print("write", node, entered, System.nanoTime());
                    writer.release();
                } else {
                    acquire(reader);
                    long entered = work();
                    print("read", reader.getLockPath(), entered, System.nanoTime());
                    reader.release();
                }
            }
        }
        System.out.println("ok");
    }

    private static void acquire(InterProcessMutex lock) throws Exception {
        if (!lock.acquire(LIMIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no turn");
        }
    }

    /** Takes a moment, so that two at once are seen; returns when it began. */
    private static long work() {
        long entered = System.nanoTime();
        while (System.nanoTime() - entered < 100_000) {
            Thread.onSpinWait();
        }
        return entered;
    }

    private static void print(String kind, String node, long entered, long left) {
        String sequence = node.substring(node.length() - 10);
        System.out.println(kind + " " + sequence + " " + entered + " " + left);
    }

    // The path of the node is for subclasses only.

    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        @Override
        protected String getLockPath() {
            return super.getLockPath();
        }
    }

    private static final class Writer extends InterProcessReadWriteLock.WriteLock {
        Writer(CuratorFramework client, String path) {
            super(client, path, null);
        }

        @Override
        protected String getLockPath() {
            return super.getLockPath();
        }
    }

    private static final class Reader extends InterProcessReadWriteLock.ReadLock {
        Reader(CuratorFramework client, String path, InterProcessReadWriteLock.WriteLock writer) {
            super(client, path, null, writer);
        }

        @Override
        protected String getLockPath() {
            return super.getLockPath();
        }
    }
}
