import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.Stat;

/** Checks a server at HOST:PORT with Curator: operations, watches, transactions and recipes. */
public final class CuratorSmoke {
    // Nothing here should take long; a wait that reaches this has failed.
    private static final long LIMIT_S = 10;
    private static final long TOTAL_LIMIT_S = 30;
    private static final int CONTENDERS = 3;

    private final String connectString;
    private final List<CuratorFramework> clients = new ArrayList<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private CuratorSmoke(String connectString) {
        this.connectString = connectString;
    }

    public static void main(String[] arguments) {
        endInTime();
        int status = 1;
        try {
            String chroot = "/CuratorSmoke-" + UUID.randomUUID();
            try (CuratorFramework root = new CuratorSmoke(arguments[0]).connect()) {
                root.create().forPath(chroot);
            }
            CuratorSmoke smoke = new CuratorSmoke(arguments[0] + chroot);
            smoke.operations();
            smoke.specialNodes();
            smoke.acls();
            smoke.transactions();
            smoke.watches();
            smoke.mutex();
            smoke.readWriteLock();
            smoke.semaphore();
            smoke.leaderLatch();
            smoke.doubleBarrier();
            smoke.atomicLong();
            smoke.persistentNode();
            smoke.cache();
            smoke.clients.forEach(CuratorFramework::close);
            System.out.println("ok");
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        // Threads of a failed check may still wait.
        System.exit(status);
    }

    private void operations() throws Exception {
        CuratorFramework zk = connect();
        check("create gives the path", zk.create().forPath("/a", bytes("one")).equals("/a"));
        refused("create of an existing node", KeeperException.NodeExistsException.class,
                () -> zk.create().forPath("/a"));
        refused("create without a parent", KeeperException.NoNodeException.class,
                () -> zk.create().forPath("/no/child"));
        zk.create().creatingParentsIfNeeded().forPath("/deep/er/child");
        check("create with parents", zk.checkExists().forPath("/deep/er") != null);
        zk.create().creatingParentContainersIfNeeded().forPath("/con/tain/er");
        check("create with container parents", zk.checkExists().forPath("/con/tain/er") != null);
        Stat stat = new Stat();
        check("get gives data and stat", text(zk.getData().storingStatIn(stat).forPath("/a")).equals("one")
                && stat.getVersion() == 0);
        zk.create().storingStatIn(stat).forPath("/with-stat", bytes("12345"));
        check("create2 gives the stat", stat.getDataLength() == 5);
        check("set raises the version", zk.setData().withVersion(0).forPath("/a", bytes("two")).getVersion() == 1);
        refused("set with a wrong version", KeeperException.BadVersionException.class,
                () -> zk.setData().withVersion(0).forPath("/a"));
        check("exists gives nothing for no node", zk.checkExists().forPath("/none") == null);
        List<String> names = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            names.add(zk.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/a/n-"));
        }
        check("sequence numbers rise",
                names.equals(Arrays.asList("/a/n-0000000000", "/a/n-0000000001", "/a/n-0000000002")));
        check("children are listed", zk.getChildren().forPath("/a").size() == 3);
        refused("delete of a parent", KeeperException.NotEmptyException.class, () -> zk.delete().forPath("/a"));
        zk.delete().deletingChildrenIfNeeded().forPath("/a");
        check("delete with children", zk.checkExists().forPath("/a") == null);
        String protectedPath = zk.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/p-");
        check("protected create", zk.checkExists().forPath(protectedPath).getEphemeralOwner()
                == zk.getZookeeperClient().getZooKeeper().getSessionId());
        check("all children are counted",
                zk.getZookeeperClient().getZooKeeper().getAllChildrenNumber("/") >= 7);
        check("ephemerals are listed", zk.getZookeeperClient().getZooKeeper().getEphemerals().size() == 1);
        zk.sync().forPath("/");
        check("sync is answered", true);
    }

    private void specialNodes() throws Exception {
        CuratorFramework zk = connect();
        zk.create().withMode(CreateMode.CONTAINER).forPath("/container");
        check("a container is created and shows no owner",
                zk.checkExists().forPath("/container").getEphemeralOwner() == 0);
        zk.create().withTtl(600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ttl", bytes("ttl"));
        check("a node with a time to live is created", text(zk.getData().forPath("/ttl")).equals("ttl"));
        String sequential = zk.create().withTtl(600_000)
                .withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath("/ttl-");
        check("also a sequential one", sequential.matches("/ttl-\\d{10}"));
    }

    private void acls() throws Exception {
        CuratorFramework stranger = connect();
        CuratorFramework owner = CuratorFrameworkFactory.builder().connectString(connectString)
                .authorization("digest", bytes("owner:secret")).retryPolicy(new RetryOneTime(100)).build();
        start(owner);
        owner.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/private", bytes("mine"));
        check("the owner reads", text(owner.getData().forPath("/private")).equals("mine"));
        refused("reading by a stranger", KeeperException.NoAuthException.class,
                () -> stranger.getData().forPath("/private"));
        check("the ACL names the owner",
                owner.getACL().forPath("/private").get(0).getId().getId().startsWith("owner:"));
        owner.setACL().withACL(ZooDefs.Ids.READ_ACL_UNSAFE).forPath("/private");
        check("until the ACL is opened", text(stranger.getData().forPath("/private")).equals("mine"));
    }

    private void transactions() throws Exception {
        CuratorFramework zk = connect();
        zk.create().forPath("/t");
        List<CuratorTransactionResult> results = zk.transaction().forOperations(
                zk.transactionOp().check().withVersion(0).forPath("/t"),
                zk.transactionOp().create().forPath("/t/a"),
                zk.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/t/s-"),
                zk.transactionOp().setData().forPath("/t", bytes("done")),
                zk.transactionOp().delete().forPath("/t/a"));
        // The Java client leaves the chroot in the paths of a multi's results.
        check("a transaction gives each result", results.size() == 5
                && results.get(2).getResultPath().endsWith("/t/s-0000000001")
                && results.get(3).getResultStat().getVersion() == 1);
        check("and has taken effect", zk.getChildren().forPath("/t").size() == 1);
        CuratorOp first = zk.transactionOp().create().forPath("/t/never");
        CuratorOp stale = zk.transactionOp().check().withVersion(0).forPath("/t");
        try {
            zk.transaction().forOperations(first, stale);
            check("a stale check fails the transaction", false);
        } catch (KeeperException.BadVersionException failure) {
            check("a failed one says where", failure.getResults().get(1) instanceof
                    org.apache.zookeeper.OpResult.ErrorResult);
        }
        check("and has no effect", zk.checkExists().forPath("/t/never") == null);
    }

    private void watches() throws Exception {
        CuratorFramework zk = connect();
        CuratorFramework other = connect();
        CountDownLatch created = new CountDownLatch(1);
        zk.checkExists().usingWatcher((org.apache.zookeeper.Watcher) event -> {
            if (event.getType() == EventType.NodeCreated && event.getPath().equals("/w")) {
                created.countDown();
            }
        }).forPath("/w");
        other.create().forPath("/w");
        check("exists watch sees the creation", await(created));
        // A recursive watch stays, and sees each change below.
        ConcurrentLinkedQueue<String> events = new ConcurrentLinkedQueue<>();
        CountDownLatch all = new CountDownLatch(4);
        org.apache.zookeeper.Watcher recursive = event -> {
            events.add(event.getType() + " " + event.getPath());
            all.countDown();
        };
        zk.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(recursive).forPath("/w");
        other.create().forPath("/w/x");
        other.create().forPath("/w/x/y");
        other.setData().forPath("/w/x/y");
        other.delete().forPath("/w/x/y");
        check("recursive watch sees four changes", await(all));
        check("in order", new ArrayList<>(events).equals(Arrays.asList("NodeCreated /w/x",
                "NodeCreated /w/x/y", "NodeDataChanged /w/x/y", "NodeDeleted /w/x/y")));
        zk.watchers().remove(recursive).forPath("/w");
        refused("removing it twice", KeeperException.NoWatcherException.class,
                () -> zk.watchers().remove(recursive).forPath("/w"));
    }

    private void mutex() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger entered = new AtomicInteger();
        inParallel(zk -> {
            InterProcessMutex mutex = new InterProcessMutex(zk, "/mutex");
            for (int n = 0; n < 3; n++) {
                require(mutex.acquire(LIMIT_S, TimeUnit.SECONDS));
                require(inside.incrementAndGet() == 1);
                entered.incrementAndGet();
                inside.decrementAndGet();
                mutex.release();
            }
        });
        check("InterProcessMutex lets one in at a time", entered.get() == 3 * CONTENDERS);
    }

    private void readWriteLock() throws Exception {
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(connect(), "/rw");
        InterProcessReadWriteLock two = new InterProcessReadWriteLock(connect(), "/rw");
        check("a reader enters", one.readLock().acquire(LIMIT_S, TimeUnit.SECONDS));
        check("and another", two.readLock().acquire(LIMIT_S, TimeUnit.SECONDS));
        two.readLock().release();
        check("but no writer", !two.writeLock().acquire(50, TimeUnit.MILLISECONDS));
        one.readLock().release();
        check("until readers left", two.writeLock().acquire(LIMIT_S, TimeUnit.SECONDS));
        two.writeLock().release();
    }

    private void semaphore() throws Exception {
        InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(connect(), "/semaphore", 2);
        InterProcessSemaphoreV2 two = new InterProcessSemaphoreV2(connect(), "/semaphore", 2);
        Lease first = one.acquire(LIMIT_S, TimeUnit.SECONDS);
        check("InterProcessSemaphoreV2 has two leases",
                first != null && one.acquire(LIMIT_S, TimeUnit.SECONDS) != null);
        check("and no third", two.acquire(50, TimeUnit.MILLISECONDS) == null);
        Future<Lease> third = threads.submit(() -> two.acquire(LIMIT_S, TimeUnit.SECONDS));
        one.returnLease(first);
        check("until one is returned", third.get(LIMIT_S, TimeUnit.SECONDS) != null);
    }

    private void leaderLatch() throws Exception {
        LeaderLatch one = new LeaderLatch(connect(), "/latch", "one");
        LeaderLatch two = new LeaderLatch(connect(), "/latch", "two");
        one.start();
        check("LeaderLatch elects", one.await(LIMIT_S, TimeUnit.SECONDS));
        two.start();
        eventually("and has two participants", () -> one.getParticipants().size() == 2);
        check("of which one leads", one.hasLeadership() && !two.hasLeadership()
                && two.getLeader().getId().equals("one"));
        one.close();
        check("and the other when it left", two.await(LIMIT_S, TimeUnit.SECONDS));
        two.close();
    }

    private void doubleBarrier() throws Exception {
        AtomicInteger arrived = new AtomicInteger();
        AtomicInteger leaving = new AtomicInteger();
        inParallel(zk -> {
            DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(zk, "/barrier", CONTENDERS);
            arrived.incrementAndGet();
            require(barrier.enter(LIMIT_S, TimeUnit.SECONDS));
            require(arrived.get() == CONTENDERS);
            leaving.incrementAndGet();
            require(barrier.leave(LIMIT_S, TimeUnit.SECONDS));
            require(leaving.get() == CONTENDERS);
        });
        check("DistributedDoubleBarrier gathers three, and lets three go", true);
    }

    private void atomicLong() throws Exception {
        inParallel(zk -> {
            DistributedAtomicLong number = new DistributedAtomicLong(zk, "/long", new RetryOneTime(1));
            for (int added = 0; added < 5; ) {
                added += number.increment().succeeded() ? 1 : 0;
            }
        });
        DistributedAtomicLong number = new DistributedAtomicLong(connect(), "/long", new RetryOneTime(1));
        check("DistributedAtomicLong loses no addition", number.get().postValue() == 5L * CONTENDERS);
    }

    private void persistentNode() throws Exception {
        CuratorFramework zk = connect();
        CuratorFramework other = connect();
        PersistentNode node = new PersistentNode(zk, CreateMode.EPHEMERAL, false, "/persistent", bytes("here"));
        node.start();
        check("PersistentNode is created", node.waitForInitialCreate(LIMIT_S, TimeUnit.SECONDS));
        long first = other.checkExists().forPath("/persistent").getCzxid();
        other.delete().forPath("/persistent");
        eventually("and again when deleted", () -> {
            Stat stat = other.checkExists().forPath("/persistent");
            return stat != null && stat.getCzxid() > first;
        });
        node.close();
        check("and deleted in the end", other.checkExists().forPath("/persistent") == null);
    }

    private void cache() throws Exception {
        CuratorFramework zk = connect();
        CuratorFramework other = connect();
        other.create().creatingParentsIfNeeded().forPath("/cache/before", bytes("1"));
        try (CuratorCache cache = CuratorCache.build(zk, "/cache")) {
            CountDownLatch initialized = new CountDownLatch(1);
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forInitialized(initialized::countDown).build());
            cache.start();
            check("CuratorCache is filled", await(initialized) && cached(cache, "/cache/before").equals("1"));
            other.create().forPath("/cache/after", bytes("2"));
            eventually("sees a creation", () -> cached(cache, "/cache/after").equals("2"));
            other.setData().forPath("/cache/after", bytes("3"));
            eventually("a change", () -> cached(cache, "/cache/after").equals("3"));
            other.delete().forPath("/cache/before");
            eventually("and a deletion", () -> !cache.get("/cache/before").isPresent());
        }
    }

    private CuratorFramework connect() throws Exception {
        return start(CuratorFrameworkFactory.newClient(connectString, new RetryOneTime(100)));
    }

    private CuratorFramework start(CuratorFramework client) throws Exception {
        clients.add(client);
        client.start();
        if (!client.blockUntilConnected((int) LIMIT_S, TimeUnit.SECONDS)) {
            throw new AssertionError("cannot connect to " + connectString);
        }
        return client;
    }

    private interface Part {
        void run(CuratorFramework zk) throws Exception;
    }

    private void inParallel(Part part) throws Exception {
        List<Callable<Void>> parts = new ArrayList<>();
        for (int n = 0; n < CONTENDERS; n++) {
            CuratorFramework zk = connect();
            parts.add(() -> {
                part.run(zk);
                return null;
            });
        }
        for (Future<Void> result : threads.invokeAll(parts, 2 * LIMIT_S, TimeUnit.SECONDS)) {
            result.get();
        }
    }

    private static String cached(CuratorCache cache, String path) {
        return cache.get(path).map(child -> text(child.getData())).orElse("");
    }

    private static boolean await(CountDownLatch latch) throws InterruptedException {
        return latch.await(LIMIT_S, TimeUnit.SECONDS);
    }

    private static void eventually(String what, Callable<Boolean> predicate) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(LIMIT_S).toNanos();
        boolean holds = predicate.call();
        while (!holds && System.nanoTime() < deadline) {
            Thread.sleep(10);
            holds = predicate.call();
        }
        check(what, holds);
    }

    private static void refused(String what, Class<? extends KeeperException> error, Callable<?> call)
            throws Exception {
        try {
            call.call();
        } catch (KeeperException refusal) {
            check(what + " is refused", error.isInstance(refusal));
            return;
        }
        check(what + " is refused", false);
    }

    private static void check(String what, boolean condition) {
        if (!condition) {
            throw new AssertionError("FAILED: " + what);
        }
        System.out.println(what);
    }

    private static void require(boolean condition) {
        if (!condition) {
            throw new AssertionError();
        }
    }

    private static void endInTime() {
        Thread watchdog = new Thread(() -> {
            try {
                TimeUnit.SECONDS.sleep(TOTAL_LIMIT_S);
            } catch (InterruptedException ended) {
                return;
            }
            System.err.println("FAILED: not done within " + TOTAL_LIMIT_S + " s");
            Runtime.getRuntime().halt(1);
        });
        watchdog.setDaemon(true);
        watchdog.start();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
