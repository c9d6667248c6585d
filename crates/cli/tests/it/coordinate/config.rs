//! `bellwether config`, except `config edit`.

use serde_json::{Value, json};

use crate::support::bellwether::assert_code;
use crate::support::servers::Servers;

on_local_and_apache! {
    config_values_are_listed,
    config_is_set_and_compared,
    config_watch_tells_every_value,
    config_folder_goes_out_and_in_as_a_whole,
}

fn config_values_are_listed(servers: &Servers) {
    assert_eq!(servers.done(&["config", "ls", "app"]), "");
    servers.done(&["config", "set", "app/limits", "5"]);
    servers.done(&["config", "set", "app/hosts", "a,b"]);
    assert_eq!(
        servers.done(&["config", "ls", "app"]),
        "hosts \"a,b\"\nlimits \"5\"\n"
    );
    let values = servers.object(&["config", "ls", "app"]);
    assert_eq!(values["values"][1]["data"]["text"], "5", "{values}");
}

fn config_is_set_and_compared(servers: &Servers) {
    assert_code(&servers.run(&["config", "get", "app/limits"]), 1);
    servers.done(&["config", "set", "app/limits", "one"]);
    assert_eq!(servers.done(&["config", "get", "app/limits"]), "one");
    let version = servers.object(&["config", "get", "app/limits"])["version"].to_string();
    let set = ["config", "set", "app/limits", "two", "--expect", &version];
    servers.done(&set);
    assert_code(&servers.run(&set), 1);
}

fn config_watch_tells_every_value(servers: &Servers) {
    let mut watch = servers.staying(&["config", "watch", "limits", "--json", "-n", "3"]);
    let mut data =
        || serde_json::from_str::<Value>(&watch.line().unwrap()).unwrap()["data"].clone();
    assert_eq!(data(), Value::Null);
    for value in ["1", "2"] {
        servers.done(&["config", "set", "limits", value]);
        assert_eq!(data(), json!({"text": value}));
    }
    assert_eq!(watch.code(), Some(0));
}

fn config_folder_goes_out_and_in_as_a_whole(servers: &Servers) {
    let import = |text: &str, options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.json");
        std::fs::write(&file, text).unwrap();
        let arguments = ["config", "import", "db", file.to_str().unwrap()];
        servers.run(&[&arguments[..], options].concat())
    };
    let values = r#"{"host": "db2", "key": {"base64": "/wA="}}"#;
    assert_code(&import(values, &[]), 0);
    let exported = servers.done(&["config", "export", "db"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported, serde_json::from_str::<Value>(values).unwrap());
    assert_code(&import(r#"{"port": "5433"}"#, &["--merge"]), 0);
    assert_eq!(servers.done(&["config", "get", "db/host"]), "db2");
    assert_code(&import(r#"{"port": "5434"}"#, &[]), 0);
    assert_eq!(
        servers.done(&["config", "export", "db"]),
        "{\n  \"port\": \"5434\"\n}\n"
    );
    assert_code(&import("[1]", &[]), 2);
}
