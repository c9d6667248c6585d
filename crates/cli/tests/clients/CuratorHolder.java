import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryOneTime;

/** Holds one of each of Curator's locks at ADDRESS below PATH, says so, and goes on until its input ends. */
public class CuratorHolder {
    private static final int LIMIT_S = 30;

    public static void main(String[] arguments) throws Exception {
        String path = arguments[1];
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        client.start();
        had(new InterProcessMutex(client, path + "/lock").acquire(LIMIT_S, TimeUnit.SECONDS));
        had(new InterProcessReadWriteLock(client, path + "/shared").writeLock().acquire(LIMIT_S, TimeUnit.SECONDS));
        had(new InterProcessSemaphoreV2(client, path + "/permits", 2).acquire(LIMIT_S, TimeUnit.SECONDS) != null);
        LeaderLatch latch = new LeaderLatch(client, path + "/leader", "curator's own");
        latch.start();
        had(latch.await(LIMIT_S, TimeUnit.SECONDS));
        System.out.println("held");
        System.in.readAllBytes();
        latch.close();
        client.close();
    }

    private static void had(boolean had) {
        if (!had) {
            throw new IllegalStateException("not had");
        }
    }
}
