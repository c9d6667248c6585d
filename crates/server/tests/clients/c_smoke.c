/* Checks a server at HOST:PORT with Apache's C client, which runs its own threads.
 * Build: cc -DTHREADED c_smoke.c -lzookeeper_mt */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

/* Of one wait, and of the whole: calls wait for an answer for ever, the signal ends the process. */
enum { LIMIT_S = 10, TOTAL_LIMIT_S = 30 };
enum { PATH_MAX_BYTES = 128 };

/* The last event a watcher saw, to be awaited. */
struct events {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int type, state;
    char path[PATH_MAX_BYTES];
};

static void check(const char *what, int condition) {
    if (!condition) {
        fprintf(stderr, "FAILED: %s\n", what);
        exit(1);
    }
    puts(what);
    fflush(stdout);
}

static void watcher(zhandle_t *zk, int type, int state, const char *path, void *context) {
    struct events *events = context;
    (void)zk;
    pthread_mutex_lock(&events->lock);
    events->type = type;
    events->state = state;
    snprintf(events->path, sizeof events->path, "%s", path ? path : "");
    pthread_cond_broadcast(&events->arrived);
    pthread_mutex_unlock(&events->lock);
}

/* The types and states are variables in the C client, not constants. */
static int await_event(struct events *events, int type, int state, const char *path) {
    struct timespec deadline;
    int late = 0, seen = 0;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += LIMIT_S;
    pthread_mutex_lock(&events->lock);
    for (;;) {
        seen = events->type == type && events->state == state && strcmp(events->path, path) == 0;
        if (seen || late)
            break;
        late = pthread_cond_timedwait(&events->arrived, &events->lock, &deadline) != 0;
    }
    pthread_mutex_unlock(&events->lock);
    return seen;
}

static struct events new_events(void) {
    struct events events = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, ""};
    return events;
}

static zhandle_t *connect_to(const char *address, struct events *session) {
    zhandle_t *zk = zookeeper_init(address, watcher, LIMIT_S * 1000, NULL, session, 0);
    check("connects", zk && await_event(session, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, ""));
    return zk;
}

static void operations(zhandle_t *zk) {
    char path[PATH_MAX_BYTES], data[16];
    int bytes = sizeof data;
    struct Stat stat;
    struct String_vector children;

    check("creates", zoo_create(zk, "/a", "one", 3, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path) == ZOK
                         && strcmp(path, "/a") == 0);
    check("refuses to create twice",
          zoo_create(zk, "/a", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZNODEEXISTS);
    check("gets", zoo_get(zk, "/a", 0, data, &bytes, &stat) == ZOK && bytes == 3
                      && memcmp(data, "one", 3) == 0 && stat.version == 0);
    check("sets", zoo_set2(zk, "/a", "two", 3, 0, &stat) == ZOK && stat.version == 1);
    check("refuses a wrong version", zoo_set(zk, "/a", "", 0, 0) == ZBADVERSION);
    check("finds nothing", zoo_exists(zk, "/none", 0, &stat) == ZNONODE);
    check("creates an ephemeral in sequence",
          zoo_create(zk, "/a/e-", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, path,
                     sizeof path) == ZOK
              && strcmp(path, "/a/e-0000000000") == 0);
    check("which names its owner",
          zoo_exists(zk, path, 0, &stat) == ZOK && stat.ephemeralOwner == zoo_client_id(zk)->client_id);
    bytes = sizeof data;
    check("and has no data", zoo_get(zk, path, 0, data, &bytes, &stat) == ZOK && bytes == -1);
    check("lists children", zoo_get_children2(zk, "/a", 0, &children, &stat) == ZOK && children.count == 1
                                && strcmp(children.data[0], "e-0000000000") == 0 && stat.numChildren == 1);
    deallocate_String_vector(&children);
    check("refuses to delete a parent", zoo_delete(zk, "/a", -1) == ZNOTEMPTY);
    check("deletes", zoo_delete(zk, path, -1) == ZOK);
}

static void watches(zhandle_t *zk, zhandle_t *other) {
    struct events data = new_events(), child = new_events(), none = new_events();
    char buffer[16];
    int bytes = sizeof buffer;
    struct Stat stat;
    struct String_vector children;

    check("watches data", zoo_wget(zk, "/a", watcher, &data, buffer, &bytes, &stat) == ZOK);
    check("watches children", zoo_wget_children(zk, "/a", watcher, &child, &children) == ZOK);
    deallocate_String_vector(&children);
    check("watches what is not there", zoo_wexists(zk, "/b", watcher, &none, &stat) == ZNONODE);
    check("another client writes", zoo_set(other, "/a", "three", 5, -1) == ZOK
                                       && zoo_create(other, "/a/c", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK
                                       && zoo_create(other, "/b", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK);
    check("the change arrives", await_event(&data, ZOO_CHANGED_EVENT, ZOO_CONNECTED_STATE, "/a"));
    check("the child arrives", await_event(&child, ZOO_CHILD_EVENT, ZOO_CONNECTED_STATE, "/a"));
    check("the creation arrives", await_event(&none, ZOO_CREATED_EVENT, ZOO_CONNECTED_STATE, "/b"));
}

static void transactions(zhandle_t *zk) {
    char path[PATH_MAX_BYTES];
    struct Stat stat;
    zoo_op_t good[4], bad[3];
    zoo_op_result_t results[4];

    zoo_create_op_init(&good[0], "/t", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    zoo_check_op_init(&good[1], "/t", 0);
    zoo_set_op_init(&good[2], "/t", "x", 1, 0, &stat);
    zoo_delete_op_init(&good[3], "/b", -1);
    check("commits a multi", zoo_multi(zk, 4, good, results) == ZOK && strcmp(path, "/t") == 0
                                 && stat.version == 1 && zoo_exists(zk, "/b", 0, NULL) == ZNONODE);
    zoo_create_op_init(&bad[0], "/never", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_check_op_init(&bad[1], "/t", 7);
    zoo_delete_op_init(&bad[2], "/t", -1);
    check("refuses a stale one", zoo_multi(zk, 3, bad, results) == ZBADVERSION);
    check("and says where", results[0].err == ZOK && results[1].err == ZBADVERSION
                                && results[2].err == ZRUNTIMEINCONSISTENCY);
    check("with no effect", zoo_exists(zk, "/never", 0, NULL) == ZNONODE
                                && zoo_exists(zk, "/t", 0, NULL) == ZOK);
}

int main(int count, char **arguments) {
    char chroot[PATH_MAX_BYTES], chrooted[2 * PATH_MAX_BYTES];
    struct events root_session = new_events(), session = new_events(), other_session = new_events();
    struct events ephemeral = new_events();
    zhandle_t *root, *zk, *other;
    struct Stat stat;

    if (count != 2) {
        fprintf(stderr, "usage: c_smoke HOST:PORT\n");
        return 2;
    }
    alarm(TOTAL_LIMIT_S);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    snprintf(chroot, sizeof chroot, "/c_smoke-%ld-%lld", (long)getpid(), (long long)time(NULL));
    snprintf(chrooted, sizeof chrooted, "%s%s", arguments[1], chroot);
    root = connect_to(arguments[1], &root_session);
    check("makes its root", zoo_create(root, chroot, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK);
    check("closes", zookeeper_close(root) == ZOK);

    zk = connect_to(chrooted, &session);
    other = connect_to(chrooted, &other_session);
    operations(zk);
    watches(zk, other);
    transactions(zk);
    check("another client has an ephemeral",
          zoo_create(other, "/e", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0) == ZOK
              && zoo_wexists(zk, "/e", watcher, &ephemeral, &stat) == ZOK);
    check("and closes", zookeeper_close(other) == ZOK);
    check("so it is deleted", await_event(&ephemeral, ZOO_DELETED_EVENT, ZOO_CONNECTED_STATE, "/e"));
    check("closes too", zookeeper_close(zk) == ZOK);
    puts("ok");
    return 0;
}
