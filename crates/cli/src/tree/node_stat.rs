//! The stat of a node, as text and as JSON.

use std::io::{self, Write};

use bellwether::zk::Stat;
use serde_json::{Map, Value, json};

use crate::output::rendering::hex;
use crate::output::time_text::time_text;

/// The kind of a node, as far as servers tell clients: whether it is ephemeral. Containers and nodes with a time to live look like
/// persistent nodes (`DataNode.copyStat` hides their kind).
pub(crate) fn kind(stat: &Stat) -> &'static str {
    if stat.ephemeral_owner == 0 {
        "persistent"
    } else {
        "ephemeral"
    }
}

/// One field per line.
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

/// The last fields of every JSON object of a node: those of `bellwether snapshot`, and the counts of the server.
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

/// An object of a node: the fields of `said`, and the stat.
pub(crate) fn object(said: Value, stat: &Stat) -> Value {
    let mut object = match said {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.extend(fields(stat));
    Value::Object(object)
}
