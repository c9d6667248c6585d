import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.ZooKeeper;

/** Curator as a peer: reads tasks, a line each, answers each with a line of JSON (see ../../src/peer.rs). */
public final class CuratorPeer {
    private static final int SESSION_TIMEOUT_MS = 30_000;
    private static final int CONNECTION_TIMEOUT_MS = 30_000;
    private static final int END_MAX_MS = 150_000;
    private static final int LOOK_EVERY_MS = 10;

    private static final int WRITES_ONE_IN = 10;
    private static final int PERMITS = 5;

    /** What stands in a queue for each consumer before the first is taken, and what an item holds. */
    private static final int BACKLOG = 50;
    private static final byte[] PAYLOAD = new byte[100];

    /** Counts turns, of several threads; read by the one who measures. */
    private static final class Tally {
        volatile long turns;
        volatile long handOvers;
        volatile boolean over;
        volatile boolean ended;
        int contenders;
        volatile Exception error;
        private int last = -1;

        synchronized void turn(int number) {
            turns++;
            if (last != number) {
                handOvers++;
            }
            last = number;
        }
    }

    /** What a contender does until it is over. */
    private interface Recipe {
        void contend(CuratorFramework client, String path, int number, Tally tally) throws Exception;
    }

    private static Recipe recipe(String name) {
        switch (name) {
            case "lock":
                return CuratorPeer::lock;
            case "shared":
                return CuratorPeer::shared;
            case "permits":
                return CuratorPeer::permits;
            case "election":
                return CuratorPeer::election;
            case "double-barrier":
                return CuratorPeer::doubleBarrier;
            case "queue":
                return CuratorPeer::queue;
            default:
                throw new IllegalArgumentException("no recipe " + name);
        }
    }

    private static void lock(CuratorFramework client, String path, int number, Tally tally) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, path);
        while (!tally.over) {
            lock.acquire();
            tally.turn(number);
            lock.release();
        }
    }

    private static void shared(CuratorFramework client, String path, int number, Tally tally) throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
        for (int turn = number; !tally.over; turn++) {
            InterProcessMutex side = turn % WRITES_ONE_IN == 0 ? lock.writeLock() : lock.readLock();
            side.acquire();
            tally.turn(number);
            side.release();
        }
    }

    private static void permits(CuratorFramework client, String path, int number, Tally tally) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, PERMITS);
        while (!tally.over) {
            Lease lease = semaphore.acquire();
            tally.turn(number);
            semaphore.returnLease(lease);
        }
    }

    private static void queue(CuratorFramework client, String path, int number, Tally tally) throws Exception {
        Consumer consumer = new Consumer(number, tally);
        DistributedQueue<byte[]> queue = QueueBuilder.builder(client, consumer, new Bytes(), path)
                .lockPath(path + "-locks")
                .buildQueue();
        consumer.queue = queue;
        queue.start();
        for (int i = 0; i < BACKLOG; i++) {
            queue.put(PAYLOAD);
        }
        while (!tally.over && tally.error == null) {
            Thread.sleep(LOOK_EVERY_MS);
        }
        queue.close();
    }

    /** Puts an item for each one that it is given. Curator puts in the background, so the consumer does not wait for it. */
    private static final class Consumer implements QueueConsumer<byte[]> {
        private final int number;
        private final Tally tally;
        volatile DistributedQueue<byte[]> queue;

        Consumer(int number, Tally tally) {
            this.number = number;
            this.tally = tally;
        }

        @Override
        public void consumeMessage(byte[] message) throws Exception {
            if (!tally.over) {
                queue.put(PAYLOAD);
            }
            tally.turn(number);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {}
    }

    private static final class Bytes implements QueueSerializer<byte[]> {
        @Override
        public byte[] serialize(byte[] item) {
            return item;
        }

        @Override
        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    }

    private static void election(CuratorFramework client, String path, int number, Tally tally) throws Exception {
        while (!tally.over) {
            LeaderLatch latch = new LeaderLatch(client, path);
            latch.start();
            latch.await();
            tally.turn(number);
            latch.close();
        }
    }

    /** One barrier after the other at two paths in turn: at one, a quick member would meet the slow of the round before. */
    private static void doubleBarrier(CuratorFramework client, String path, int number, Tally tally)
            throws Exception {
        for (int round = 0; !tally.ended; round++) {
            DistributedDoubleBarrier barrier =
                    new DistributedDoubleBarrier(client, path + "/" + round % 2, tally.contenders);
            barrier.enter();
            if (number == 0) {
                tally.turn(number);
                // All members are inside, and check only when all have left.
                tally.ended = tally.over;
            }
            barrier.leave();
        }
    }

    /** How many nodes stand in a directory of what is cached, of how many one changes, and how many in a transaction. */
    private static final int CHILDREN = 1000;
    private static final int CHANGES_ONE_IN = 10;
    private static final int BATCH = 500;

    private static CuratorFramework connected(String address) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                address, SESSION_TIMEOUT_MS, CONNECTION_TIMEOUT_MS, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected(CONNECTION_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return client;
    }

    /** What is cached. */
    private static String cached(int nodes) {
        return "/cached/" + nodes;
    }

    private static String node(int nodes, int number) {
        return cached(nodes) + "/" + number / CHILDREN + "/" + number % CHILDREN;
    }

    private static long residentKib() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IllegalStateException("no VmRSS");
    }

    private static String outcome(long turns, long allTurns, long nanoseconds, long residentKib) {
        return String.format(
                Locale.ROOT,
                "{\"turns\": %d, \"hand_overs\": 0, \"all_turns\": %d, \"seconds\": %f, \"resident_kib\": %d}",
                turns,
                allTurns,
                nanoseconds / 1e9,
                residentKib);
    }

    private static void await(CountDownLatch latch, String what) throws Exception {
        if (!latch.await(END_MAX_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(what + " within " + END_MAX_MS + " ms");
        }
    }

    /** Starts a cache, and returns how long it took to load. */
    private static long load(CuratorCache cache) throws Exception {
        CountDownLatch loaded = new CountDownLatch(1);
        cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(loaded::countDown).build());
        long start = System.nanoTime();
        cache.start();
        await(loaded, "not loaded");
        return System.nanoTime() - start;
    }

    private static String cache(String address, int nodes) throws Exception {
        try (CuratorFramework client = connected(address);
                CuratorCache cache = CuratorCache.build(client, cached(nodes))) {
            long time = load(cache);
            long resident = residentKib();
            if (cache.size() <= nodes) {
                throw new IllegalStateException("loaded, it says, but " + cache.size() + " nodes of " + nodes + " are there");
            }
            return outcome(nodes, nodes, time, resident);
        }
    }

    private static String cacheChanges(String address, String path, int nodes) throws Exception {
        int changes = nodes / CHANGES_ONE_IN;
        byte[] data = String.format(Locale.ROOT, "%-100s", path).getBytes(StandardCharsets.UTF_8);
        try (CuratorFramework client = connected(address);
                CuratorFramework writer = connected(address);
                CuratorCache cache = CuratorCache.build(client, cached(nodes))) {
            load(cache);
            if (cache.size() <= nodes) {
                throw new IllegalStateException("nodes are missing");
            }
            CountDownLatch seen = new CountDownLatch(changes);
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forChanges((before, after) -> {
                        if (Arrays.equals(after.getData(), data)) {
                            seen.countDown();
                        }
                    })
                    .build());
            long start = System.nanoTime();
            for (int first = 0; first < changes; first += BATCH) {
                List<CuratorOp> batch = new ArrayList<>();
                for (int number = first; number < Math.min(first + BATCH, changes); number++) {
                    batch.add(writer.transactionOp().setData().forPath(node(nodes, number), data));
                }
                writer.transaction().inBackground().forOperations(batch);
            }
            await(seen, "not seen");
            return outcome(changes, changes, System.nanoTime() - start, 0);
        }
    }

    private static String watchers(String address, String path, int count, long warmUpMs, long durationMs)
            throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        try (CuratorFramework writer = connected(address)) {
            writer.create().forPath(path, "0".getBytes(StandardCharsets.UTF_8));
            Semaphore told = new Semaphore(0);
            for (int i = 0; i < count; i++) {
                CuratorFramework client = connected(address);
                clients.add(client);
                CuratorCache cache = CuratorCache.build(client, path, CuratorCache.Options.SINGLE_NODE_CACHE);
                cache.listenable().addListener(CuratorCacheListener.builder()
                        .forCreatesAndChanges((before, after) -> told.release())
                        .build());
                cache.start();
            }
            allTold(told, count);
            AtomicInteger changes = new AtomicInteger();
            change(writer, path, told, count, changes, warmUpMs);
            long start = System.nanoTime();
            long before = changes.get();
            change(writer, path, told, count, changes, durationMs);
            long time = System.nanoTime() - start;
            return outcome((changes.get() - before) * count, (changes.get() + 1L) * count, time, 0);
        } finally {
            for (CuratorFramework client : clients) {
                client.close();
            }
        }
    }

    private static void change(
            CuratorFramework writer, String path, Semaphore told, int count, AtomicInteger changes, long forMs)
            throws Exception {
        long end = System.nanoTime() + forMs * 1_000_000;
        while (System.nanoTime() < end) {
            String value = String.valueOf(changes.incrementAndGet());
            writer.setData().forPath(path, value.getBytes(StandardCharsets.UTF_8));
            allTold(told, count);
        }
    }

    private static void allTold(Semaphore told, int count) throws Exception {
        if (!told.tryAcquire(count, END_MAX_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("not told within " + END_MAX_MS + " ms");
        }
    }

    /** One request after the other, with the client below Curator. */
    private static String exists(String address, String path, long warmUpMs, long durationMs) throws Exception {
        try (CuratorFramework client = connected(address)) {
            ZooKeeper zooKeeper = client.getZookeeperClient().getZooKeeper();
            long allTurns = 0;
            for (long start = System.nanoTime(); System.nanoTime() - start < warmUpMs * 1_000_000; allTurns++) {
                zooKeeper.exists(path, false);
            }
            long[] latencies = new long[1024];
            int turns = 0;
            long start = System.nanoTime();
            long now = start;
            while (now - start < durationMs * 1_000_000) {
                long before = now;
                if (zooKeeper.exists(path, false) == null) {
                    throw new IllegalStateException(path + " is missing");
                }
                now = System.nanoTime();
                if (turns == latencies.length) {
                    latencies = Arrays.copyOf(latencies, 2 * turns);
                }
                latencies[turns++] = now - before;
            }
            Arrays.sort(latencies, 0, turns);
            return String.format(
                    Locale.ROOT,
                    "{\"turns\": %d, \"hand_overs\": 0, \"all_turns\": %d, \"seconds\": %f,"
                            + " \"round_trips\": {\"p50_us\": %f, \"p99_us\": %f}}",
                    turns,
                    allTurns + turns,
                    (now - start) / 1e9,
                    latencies[Math.round((turns - 1) * 0.5f)] / 1e3,
                    latencies[Math.round((turns - 1) * 0.99f)] / 1e3);
        }
    }

    private static String run(String[] task) throws Exception {
        int count = Integer.parseInt(task[3]);
        switch (task[0]) {
            case "exists":
                return exists(task[1], task[2], Long.parseLong(task[5]), Long.parseLong(task[6]));
            case "cache":
                return cache(task[1], count);
            case "cache-changes":
                return cacheChanges(task[1], task[2], count);
            case "watchers":
                return watchers(task[1], task[2], count, Long.parseLong(task[5]), Long.parseLong(task[6]));
            default:
                return contend(task);
        }
    }

    private static String contend(String[] task) throws Exception {
        Recipe recipe = recipe(task[0]);
        String address = task[1];
        String path = task[2];
        int contenders = Integer.parseInt(task[3]);
        int sessions = Integer.parseInt(task[4]);
        List<CuratorFramework> clients = new ArrayList<>();
        try {
            for (int i = 0; i < sessions; i++) {
                clients.add(connected(address));
            }
            Tally tally = new Tally();
            tally.contenders = contenders;
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < contenders; i++) {
                int number = i;
                Thread thread = new Thread(() -> {
                    try {
                        recipe.contend(clients.get(number % sessions), path, number, tally);
                    } catch (Exception error) {
                        tally.error = error;
                    }
                });
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }
            Thread.sleep(Long.parseLong(task[5]));
            long start = System.nanoTime();
            long turns = tally.turns;
            long handOvers = tally.handOvers;
            Thread.sleep(Long.parseLong(task[6]));
            turns = tally.turns - turns;
            handOvers = tally.handOvers - handOvers;
            double seconds = (System.nanoTime() - start) / 1e9;
            tally.over = true;
            long deadline = System.currentTimeMillis() + END_MAX_MS;
            for (Thread thread : threads) {
                thread.join(Math.max(1, deadline - System.currentTimeMillis()));
                if (thread.isAlive()) {
                    throw new IllegalStateException("a contender had no turn within " + END_MAX_MS + " ms");
                }
            }
            if (tally.error != null) {
                throw tally.error;
            }
            return String.format(
                    Locale.ROOT,
                    "{\"turns\": %d, \"hand_overs\": %d, \"all_turns\": %d, \"seconds\": %f}",
                    turns,
                    handOvers,
                    tally.turns,
                    seconds);
        } finally {
            for (CuratorFramework client : clients) {
                client.close();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String line = tasks.readLine(); line != null; line = tasks.readLine()) {
            String answer;
            try {
                answer = run(line.trim().split(" "));
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.toString().replace('"', '\'').replace('\n', ' ') + "\"}";
            }
            System.out.println(answer);
        }
    }
}
