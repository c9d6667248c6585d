//! `conf`, `dirs` and `envi`: settings and environment of the server.

use std::path::Path;

use super::VERSION;
use crate::config::Config;

/// Size of the data files in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirectorySizes {
    pub(crate) snapshots_bytes: u64,
    pub(crate) log_bytes: u64,
}

/// Environment of the server process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) host_name: String,
    pub(crate) os_name: String,
    pub(crate) os_arch: String,
    pub(crate) os_version: String,
    pub(crate) user_name: String,
    pub(crate) user_home: String,
    pub(crate) user_dir: String,
}

/// The answer to `conf`; `port` is the client port.
pub(crate) fn conf(config: &Config, port: u16, sizes: DirectorySizes) -> String {
    let data_dir = config.data_dir.as_deref();
    let log_dir = config.data_log_dir.as_deref().or(data_dir);
    let (min, max) = config.session_timeouts();
    let secure = config.tls.as_ref().and_then(|tls| tls.listen.first());
    let secure_port = secure.map_or(-1, |address| i32::from(address.port()));
    format!(
        "clientPort={port}\n\
         secureClientPort={secure_port}\n\
         dataDir={}\n\
         dataDirSize={}\n\
         dataLogDir={}\n\
         dataLogSize={}\n\
         tickTime={}\n\
         maxClientCnxns={}\n\
         minSessionTimeout={}\n\
         maxSessionTimeout={}\n\
         clientPortListenBacklog=-1\n\
         serverId=0\n",
        version_dir(data_dir),
        sizes.snapshots_bytes,
        version_dir(log_dir),
        sizes.log_bytes,
        config.tick.as_millis(),
        config.connections_per_address_max,
        min.as_millis(),
        max.as_millis(),
    )
}

/// Folder of the data files; empty for a server without files.
fn version_dir(dir: Option<&Path>) -> String {
    dir.map(|dir| dir.join("version-2").display().to_string())
        .unwrap_or_default()
}

/// The answer to `dirs`.
pub(crate) fn dirs(sizes: DirectorySizes) -> String {
    let DirectorySizes {
        snapshots_bytes,
        log_bytes,
    } = sizes;
    format!("datadir_size: {snapshots_bytes}\nlogdir_size: {log_bytes}\n")
}

/// The answer to `envi`, without the lines about the Java machine.
pub(crate) fn envi(environment: &Environment) -> String {
    let Environment {
        host_name,
        os_name,
        os_arch,
        os_version,
        user_name,
        user_home,
        user_dir,
    } = environment;
    format!(
        "Environment:\n\
         zookeeper.version={VERSION}\n\
         host.name={host_name}\n\
         os.name={os_name}\n\
         os.arch={os_arch}\n\
         os.version={os_version}\n\
         user.name={user_name}\n\
         user.home={user_home}\n\
         user.dir={user_dir}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::TlsConfig;

    const SIZES: DirectorySizes = DirectorySizes {
        snapshots_bytes: 457,
        log_bytes: 67_108_880,
    };

    #[test]
    fn conf_has_the_lines_of_apache() {
        let mut config = Config {
            tick: Duration::from_secs(2),
            data_dir: Some("/var/lib/zookeeper".into()),
            ..Config::default()
        };
        let expected = "\
clientPort=2181
secureClientPort=-1
dataDir=/var/lib/zookeeper/version-2
dataDirSize=457
dataLogDir=/var/lib/zookeeper/version-2
dataLogSize=67108880
tickTime=2000
maxClientCnxns=60
minSessionTimeout=4000
maxSessionTimeout=40000
clientPortListenBacklog=-1
serverId=0
";
        assert_eq!(conf(&config, 2181, SIZES), expected);
        config.data_log_dir = Some("/log".into());
        assert!(conf(&config, 2181, SIZES).contains("\ndataLogDir=/log/version-2\n"));
        config.data_dir = None;
        assert!(conf(&config, 2181, SIZES).contains("\ndataDir=\n"));
        config.tls = Some(TlsConfig {
            listen: vec![([127, 0, 0, 1], 2281).into()],
            ..TlsConfig::new("cert.pem", "key.pem")
        });
        assert!(conf(&config, 2181, SIZES).contains("\nsecureClientPort=2281\n"));
    }

    #[test]
    fn dirs_has_both_sizes() {
        assert_eq!(dirs(SIZES), "datadir_size: 457\nlogdir_size: 67108880\n");
    }

    /// Parses like kazoo's `server_version`.
    #[test]
    fn a_tool_finds_the_version_in_envi() {
        let text = envi(&Environment {
            host_name: "localhost".into(),
            ..Environment::default()
        });
        let (heading, lines) = text.split_once('\n').unwrap();
        assert_eq!(heading, "Environment:");
        let version = lines
            .lines()
            .map(|line| line.split_once('=').unwrap())
            .find_map(|(key, value)| (key == "zookeeper.version").then_some(value))
            .unwrap();
        let digits: Vec<u32> = version
            .split('-')
            .next()
            .unwrap()
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        assert_eq!(digits, [3, 8, 0]);
        assert!(lines.contains("\nhost.name=localhost\nos.name=\n"));
    }
}
