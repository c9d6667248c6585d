//! The embedded server on a simulated machine: its own code, from sockets to files, on the simulated network, clock and disk.
//!
//! The server is a process like that of a worker, and its tasks run like any other: connections, expiry, containers, and the two threads of
//! the write pipeline as a task each. It crashes between two polls of any task, or at any disk operation, and starts again from what the
//! disk has kept.

mod disk;
mod line;
mod machine;
mod visible;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bellwether_client::environment;
use bellwether_server::simulation::{SimulatedServer, set_time_of_day};
use bellwether_server::{Config, SessionPasswords};
use bellwether_testkit::CrashDisk;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng as _};

use super::{Census, EnsembleSettings, Serve};
use crate::faults::Fault;
use crate::world::{Clock, ConnId, Core, EmbeddedEvent, Event, Ms, Parts, Process, ServerEvent};

use disk::{Death, ServerDisk};
use machine::{Machine, lock};
use visible::Visible;

/// The number of the only server.
const SERVER: usize = 0;

/// How often empty containers are deleted at least, so that they are gone at the end of a run.
const REAP_EVERY_MAX: Ms = 20_000;

/// The parameters of the embedded server and its disk.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// Number of writes between two snapshots.
    pub snap_count: usize,
    /// Number of snapshots to keep, with their logs.
    pub snapshots_kept: usize,
    /// How many bytes a log file is preallocated ahead.
    pub preallocation: u64,
    /// Maximum time of an fsync.
    pub sync_max: Ms,
}

impl EmbeddedSettings {
    pub(crate) fn some(random: &mut impl Rng, timeout: Ms) -> Self {
        Self {
            snap_count: *[2, 10, 50, 100_000].choose(random).unwrap_or(&50),
            snapshots_kept: random.random_range(1..=3),
            preallocation: *[0, 512, 4096].choose(random).unwrap_or(&512),
            sync_max: *[0, 1, 5, timeout / 20].choose(random).unwrap_or(&1),
        }
    }
}

/// The embedded server, its machine and its disk.
pub(crate) struct Embedded {
    core: Rc<Core>,
    config: Config,
    settings: EmbeddedSettings,
    random: StdRng,
    life: u64,
    disk: ServerDisk,
    running: Option<Running>,
    /// When it runs again, if it was paused.
    paused_until: Ms,
    /// How long it is down after it ends by itself.
    down_time: Ms,
    /// Session timeouts are limited to this.
    timeout_max: Option<Ms>,
    /// What clients could see when it last ended.
    visible: Option<Visible>,
    wrong: Option<String>,
}

struct Running {
    process: Process,
    machine: Arc<Machine>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Embedded {
    /// A server with the tick and the limits of `limits`.
    pub(crate) fn new(
        core: Rc<Core>,
        limits: &EnsembleSettings,
        settings: EmbeddedSettings,
        seed: u64,
    ) -> Self {
        // The server runs in processes whose clocks are right.
        set_time_of_day(Some(|| {
            i64::try_from(environment::epoch_ms()).unwrap_or(i64::MAX)
        }));
        let ms = Duration::from_millis;
        let disk = ServerDisk::new(CrashDisk::new());
        Self {
            core,
            config: Config {
                tick: ms(limits.tick),
                session_timeout_max: Some(ms(limits.timeout_max)),
                connections_per_address_max: 0,
                // The key of secret ones is random, and not kept on simulated disks.
                session_passwords: SessionPasswords::Apache,
                container_check_interval: ms(limits.reap_every.min(REAP_EVERY_MAX)),
                snap_count: settings.snap_count,
                log_preallocation_bytes: settings.preallocation,
                snapshots_kept: Some(settings.snapshots_kept),
                ..Config::default()
            },
            settings,
            random: StdRng::seed_from_u64(seed),
            life: 0,
            disk,
            running: None,
            paused_until: 0,
            down_time: 0,
            timeout_max: None,
            visible: None,
            wrong: None,
        }
    }

    /// The current state. A server that is down counts as a session, so that a run does not end without it.
    pub(crate) fn census(&self) -> Census {
        let Some(Running { machine, .. }) = &self.running else {
            return Census {
                nodes: Vec::new(),
                ephemerals: Vec::new(),
                sessions: 1,
                watches: 0,
            };
        };
        let server = lock(&machine.server);
        let mut nodes = server.paths();
        nodes.retain(|path| path != "/" && !path.starts_with("/zookeeper"));
        Census {
            nodes,
            ephemerals: server.ephemerals(),
            sessions: server.sessions(),
            watches: server.watches(),
        }
    }

    /// What the server did wrong.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.wrong.clone()
    }

    /// A fault of the server, its machine or its disk. After [`Fault::ShortSessions`] sessions are `short`.
    pub(crate) fn suffer(&mut self, it: &mut Parts, fault: Fault, short: Ms) {
        match fault {
            Fault::ServerCrash { time, .. } => self.end(it, Death::Kill, time),
            Fault::ShortSessions { time, .. } => {
                self.timeout_max = Some(short);
                self.end(it, Death::Kill, time);
            }
            Fault::KillAtDisk { operations, time } => {
                self.end_at(it, operations, Death::Kill, time);
            }
            Fault::PowerLoss {
                operations,
                is_silent,
                time,
            } => self.end_at(it, operations, Death::PowerLoss { is_silent }, time),
            Fault::FailedSync { of_names, time } => {
                self.down_time = time;
                self.disk.fail_sync(of_names);
            }
            Fault::ServerPause { time, .. } => self.pause(it, it.now + time),
            _ => {}
        }
    }

    fn pause(&mut self, it: &mut Parts, until: Ms) {
        if let Some(Running { process, .. }) = &self.running {
            self.core.pause(*process);
            self.paused_until = self.paused_until.max(until);
            let life = self.life;
            put(it, self.paused_until, EmbeddedEvent::Resumes { life });
        }
    }

    /// Ends all faults.
    pub(crate) fn calm(&mut self, it: &mut Parts) {
        self.timeout_max = None;
        self.paused_until = 0;
        self.down_time = 0;
        self.disk.calm();
        let life = self.life;
        match &self.running {
            Some(Running { process, .. }) => self.core.resume(*process),
            None => put(it, it.now, EmbeddedEvent::Starts { life }),
        }
    }

    /// The server ends at a disk operation, or now.
    fn end_at(&mut self, it: &mut Parts, operations: u64, death: Death, time: Ms) {
        match operations {
            0 => self.end(it, death, time),
            _ => {
                self.down_time = time;
                self.disk.plan(operations, death);
            }
        }
    }

    /// The server ends, and is started again after `time`.
    fn end(&mut self, it: &mut Parts, death: Death, time: Ms) {
        let Some(Running { process, machine }) = self.running.take() else {
            return;
        };
        self.life += 1;
        self.paused_until = 0;
        self.visible = Some(Visible::of(&lock(&machine.server)));
        self.wrong = self.wrong.take().or_else(|| {
            let panic = machine.panic()?;
            Some(format!("the server panicked: {panic}"))
        });
        let left = self.disk.after(death, self.random.random());
        self.disk = ServerDisk::new(left);
        let now = it.now;
        if let Death::PowerLoss { is_silent: true } = death {
            // Nobody refuses a connection either.
            it.net.hold_server(SERVER, now + time);
        }
        for conn in machine.end() {
            // The system closes the connections of a process that ends. What it had not sent yet is lost with the machine.
            match death {
                Death::Kill => it.net.close_by_server(&mut it.agenda, now, conn),
                Death::PowerLoss { is_silent: false } => {
                    it.net.cut(&mut it.agenda, now, conn, Some(0));
                }
                Death::PowerLoss { is_silent: true } => {
                    it.net.lose_server(&mut it.agenda, now, conn, now + time);
                }
            }
        }
        self.core.end_tasks(process);
        let life = self.life;
        put(it, now + time, EmbeddedEvent::Starts { life });
    }

    /// Recovers from the disk, and serves.
    fn start(&mut self, it: &mut Parts) {
        let mut config = self.config.clone();
        if let Some(short) = self.timeout_max {
            let tick = config.tick;
            config.session_timeout_max = Some(Duration::from_millis(short).max(2 * tick));
        }
        let disk = Arc::new(self.disk.clone());
        let server = match SimulatedServer::start(config, disk.clone(), disk) {
            Ok(server) => server,
            Err(error) => return self.retry(it, &error),
        };
        let visible = self.visible.as_ref();
        if let Some(lost) = visible.and_then(|visible| visible.lost_in(&Visible::of(&server))) {
            self.wrong
                .get_or_insert(format!("the server recovered {lost}"));
        }
        let process = self.core.start(Clock::TRUE);
        let shared = self.core.shared.clone();
        let machine = Machine::new(self.life, server, self.disk.clone(), shared);
        for task in machine.tasks(&self.settings, self.random.random()) {
            self.core.spawn(process, task);
        }
        self.running = Some(Running { process, machine });
    }

    /// The server did not start: after a fault of the disk it is started again, anything else is wrong.
    fn retry(&mut self, it: &mut Parts, error: &bellwether_server::StartError) {
        let death = self.disk.death();
        if death.is_none() && !self.disk.has_failed() {
            let mut text = format!("the server did not start: {error}");
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            self.wrong.get_or_insert(text);
            return;
        }
        self.life += 1;
        let left = self
            .disk
            .after(death.unwrap_or(Death::Kill), self.random.random());
        self.disk = ServerDisk::new(left);
        let life = self.life;
        put(
            it,
            it.now + self.down_time + 1,
            EmbeddedEvent::Starts { life },
        );
    }
}

impl Serve for Embedded {
    fn begin(&mut self, it: &mut Parts) {
        self.start(it);
    }

    fn accept(&mut self, _: &mut Parts, _: usize, conn: ConnId) -> bool {
        let Some(Running { process, machine }) = &self.running else {
            return false;
        };
        let Some(serving) = machine.connect(conn, self.random.random()) else {
            return false;
        };
        self.core.spawn(*process, serving);
        true
    }

    fn receive(&mut self, _: &mut Parts, _: usize, conn: ConnId, bytes: &Bytes) {
        let machine = self.running.as_ref().map(|running| &running.machine);
        if let Some(line) = machine.and_then(|machine| machine.line(conn)) {
            line.receive(bytes);
        }
    }

    fn hang_up(&mut self, _: usize, conn: ConnId) {
        let machine = self.running.as_ref().map(|running| &running.machine);
        if let Some(line) = machine.and_then(|machine| machine.line(conn)) {
            line.end();
        }
    }

    fn handle(&mut self, it: &mut Parts, event: ServerEvent) {
        let ServerEvent::Embedded(event) = event else {
            return;
        };
        match event {
            EmbeddedEvent::Ends { life } if life == self.life => {
                // If the disk did not end it, the server has stopped by itself.
                let death = self.disk.death().unwrap_or(Death::Kill);
                self.end(it, death, self.down_time);
            }
            EmbeddedEvent::Starts { life } if life == self.life && self.running.is_none() => {
                self.start(it);
            }
            EmbeddedEvent::Resumes { life } if life == self.life && it.now >= self.paused_until => {
                if let Some(Running { process, .. }) = &self.running {
                    self.core.resume(*process);
                }
            }
            _ => {}
        }
    }
}

fn put(it: &mut Parts, at: Ms, event: EmbeddedEvent) {
    it.agenda
        .put(at, Event::Server(ServerEvent::Embedded(event)));
}
