//! The numbers of a node, for people and as JSON.

use std::io::{self, Write};

use bellwether::zk::Stat;
use serde_json::{Map, Value, json};

use crate::rendering::{hex, time_text};

/// What servers tell clients of a node's kind: whether it is ephemeral. Containers and nodes with a time to live look
/// like any other (`DataNode.copyStat` hides what they are).
pub(crate) fn kind(stat: &Stat) -> &'static str {
    if stat.ephemeral_owner == 0 {
        "persistent"
    } else {
        "ephemeral"
    }
}

/// One number a line.
pub(crate) fn write(out: &mut dyn Write, stat: &Stat) -> io::Result<()> {
    let lines = [
        ("kind", kind(stat).to_owned()),
        ("version", stat.version.to_string()),
        ("bytes", stat.data_length.to_string()),
        ("children", stat.num_children.to_string()),
        ("cversion", stat.cversion.to_string()),
        ("aversion", stat.aversion.to_string()),
        ("created", time_text(stat.ctime)),
        ("modified", time_text(stat.mtime)),
        ("czxid", hex(stat.czxid)),
        ("mzxid", hex(stat.mzxid)),
        ("pzxid", hex(stat.pzxid)),
        ("owner", hex(stat.ephemeral_owner)),
    ];
    for (name, value) in lines {
        writeln!(out, "{name:<9} {value}")?;
    }
    Ok(())
}

/// The fields that every JSON object of a node ends with; those of `bellwether snapshot`, and what a server counts.
pub(crate) fn fields(stat: &Stat) -> Map<String, Value> {
    let Value::Object(fields) = json!({
        "kind": kind(stat),
        "version": stat.version,
        "bytes": stat.data_length,
        "children_count": stat.num_children,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ctime_ms": stat.ctime,
        "mtime_ms": stat.mtime,
        "czxid": hex(stat.czxid),
        "mzxid": hex(stat.mzxid),
        "pzxid": hex(stat.pzxid),
        "owner": hex(stat.ephemeral_owner),
    }) else {
        unreachable!("an object was written")
    };
    fields
}

/// An object of a node: what is said of it, and its numbers.
pub(crate) fn object(said: Value, stat: &Stat) -> Value {
    let mut object = match said {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.extend(fields(stat));
    Value::Object(object)
}
