import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.RetrySleeper;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/** What a Java client sees of writes that are refused for lack of space. The first argument is the address of a server with room for /room alone. */
public final class QuotaRefused {
    private static final byte[] NOTHING = new byte[0];

    public static void main(String[] arguments) throws Exception {
        plain(arguments[0]);
        curator(arguments[0]);
        System.out.println("ok");
        System.exit(0);
    }

    private static void plain(String address) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        AtomicInteger losses = new AtomicInteger();
        ZooKeeper client = new ZooKeeper(address, 30_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            } else if (event.getState() != KeeperState.Closed) {
                losses.incrementAndGet();
            }
        });
        check(connected.await(10, TimeUnit.SECONDS), "no session");
        long session = client.getSessionId();
        client.create("/room", NOTHING, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);

        try {
            client.create("/more", NOTHING, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            check(false, "created");
        } catch (KeeperException.QuotaExceededException error) {
            check(error.code() == Code.QUOTAEXCEEDED, "code " + error.code());
            check(error.code().intValue() == -125, "code " + error.code().intValue());
            check("/more".equals(error.getPath()), "path " + error.getPath());
            String message = "KeeperErrorCode = Quota has exceeded for /more";
            check(message.equals(error.getMessage()), "message " + error.getMessage());
        }

        CountDownLatch called = new CountDownLatch(1);
        AtomicInteger code = new AtomicInteger();
        client.create("/more", NOTHING, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, (rc, path, context, name) -> {
            code.set(rc);
            called.countDown();
        }, null);
        check(called.await(10, TimeUnit.SECONDS), "no callback");
        check(Code.get(code.get()) == Code.QUOTAEXCEEDED, "callback with " + code);

        try {
            client.multi(Arrays.asList(
                Op.check("/room", 0),
                Op.create("/more", NOTHING, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)));
            check(false, "carried out");
        } catch (KeeperException.QuotaExceededException error) {
            List<OpResult> results = error.getResults();
            check(results.size() == 2, results.size() + " results");
            for (OpResult result : results) {
                check(result instanceof OpResult.ErrorResult, "not an error: " + result);
            }
        }

        // The session goes on, reads and deletes work, and a delete makes room.
        check(client.exists("/room", false) != null, "/room is gone");
        client.delete("/room", -1);
        client.create("/more", NOTHING, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        check(client.getSessionId() == session && losses.get() == 0, "the connection was lost");
        client.close();
    }

    /** Curator retries what may heal by itself; this does not, and a policy of a minute would keep the caller waiting. */
    private static void curator(String address) throws Exception {
        AtomicInteger retries = new AtomicInteger();
        RetryNTimes policy = new RetryNTimes(60, 1000) {
            @Override
            public boolean allowRetry(int count, long elapsedMs, RetrySleeper sleeper) {
                retries.incrementAndGet();
                return super.allowRetry(count, elapsedMs, sleeper);
            }
        };
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(address, policy)) {
            client.start();
            check(client.blockUntilConnected(10, TimeUnit.SECONDS), "no session");
            try {
                client.create().forPath("/still-more", NOTHING);
                check(false, "created");
            } catch (KeeperException.QuotaExceededException error) {
                check(retries.get() == 0, retries + " retries");
            }
            client.delete().forPath("/more");
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
