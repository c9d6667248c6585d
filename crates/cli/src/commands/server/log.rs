//! `bellwether log`: prints a transaction log.

use std::fs::File;
use std::io::{self, Write};

use anyhow::Context;
use bellwether_server::files::txn::{Lifetime, TxnBody};
use bellwether_server::files::{LogEnd, LogReader, LogRecord};
use bellwether_wire::code::ErrorCode;
use serde_json::{Map, Value, json};

use crate::args::DataFileArgs;
use crate::commands::server::data_file;
use crate::exit::Exit;
use crate::output::rendering::{acl_json, acl_text, data_json, data_text, hex, path_text};
use crate::output::time_text::time_text;
use crate::output::{self, Output};

pub(crate) fn run(args: DataFileArgs, output: Output) -> anyhow::Result<Exit> {
    let chosen = data_file::chosen(&args.file, "log", output)?;
    let path = chosen.display();
    let file = File::open(&chosen).with_context(|| format!("cannot open {path}"))?;
    let mut log = LogReader::open(file).with_context(|| format!("cannot read {path}"))?;
    let mut records = 0u64;
    output::answer(|out| {
        while let Some(record) = log
            .next()
            .map_err(|error| data_file::unread(&chosen, error))?
        {
            records += 1;
            if args.json {
                writeln!(out, "{}", record_json(&record))?;
            } else {
                write_record(out, &record)?;
            }
        }
        let end = log.end();
        if args.json {
            writeln!(out, "{}", end_json(&end, records))?;
        } else {
            write_end(out, &end, records)?;
        }
        Ok(match end {
            LogEnd::Damaged { .. } => Exit::No,
            LogEnd::Clean | LogEnd::Torn { .. } => Exit::Done,
        })
    })
    .map_err(anyhow::Error::from)
}

fn write_record(out: &mut dyn Write, record: &LogRecord) -> io::Result<()> {
    let (txn, offset) = (&record.txn, record.offset);
    let (zxid, session) = (hex(txn.zxid), hex(txn.session_id));
    let time = time_text(txn.time_ms);
    write!(
        out,
        "{offset} {zxid} {time} session={session} xid={} ",
        txn.cxid
    )?;
    write_body(out, &txn.body)?;
    write!(out, " bytes={}", record.bytes)?;
    if let Some(digest) = record.digest {
        write!(out, " digest={digest:#x}")?;
    }
    writeln!(out)
}

fn write_body(out: &mut dyn Write, body: &TxnBody) -> io::Result<()> {
    write!(out, "{}", name(body))?;
    match body {
        TxnBody::Create {
            path,
            data,
            acl,
            lifetime,
            parent_cversion,
        } => {
            write!(out, " {}", path_text(path))?;
            match lifetime {
                Lifetime::Ephemeral => write!(out, " ephemeral")?,
                Lifetime::Ttl { ms } => write!(out, " ttl={ms}ms")?,
                Lifetime::Persistent | Lifetime::Container => {}
            }
            let (data, acl) = (data_text(data.as_deref()), acl_text(acl));
            write!(out, " {data} acl={acl} parent-cversion={parent_cversion}")
        }
        TxnBody::Delete { path } | TxnBody::DeleteContainer { path } => {
            write!(out, " {}", path_text(path))
        }
        TxnBody::SetData {
            path,
            data,
            version,
        } => {
            let (path, data) = (path_text(path), data_text(data.as_deref()));
            write!(out, " {path} {data} version={version}")
        }
        TxnBody::SetAcl { path, acl, version } => {
            let (path, acl) = (path_text(path), acl_text(acl));
            write!(out, " {path} acl={acl} version={version}")
        }
        TxnBody::Check { path, version } => write!(out, " {} version={version}", path_text(path)),
        TxnBody::Multi(parts) => {
            write!(out, " [")?;
            for (index, part) in parts.iter().enumerate() {
                write!(out, "{}", if index == 0 { "" } else { "; " })?;
                write_body(out, part)?;
            }
            write!(out, "]")
        }
        TxnBody::Error(code) => match ErrorCode::from_number(*code) {
            Some(known) => write!(out, " {code} ({known:?})"),
            None => write!(out, " {code}"),
        },
        TxnBody::CreateSession { timeout_ms } => write!(out, " timeout={timeout_ms}ms"),
        TxnBody::CloseSession { paths } => {
            let paths: Vec<_> = paths.iter().map(|path| path_text(path)).collect();
            write!(out, " [{}]", paths.join(" "))
        }
    }
}

fn write_end(out: &mut dyn Write, end: &LogEnd, records: u64) -> io::Result<()> {
    match end {
        LogEnd::Clean => writeln!(out, "clean end after {records} records"),
        LogEnd::Torn { offset, why } => {
            writeln!(out, "torn at {offset} after {records} records: {why}")
        }
        LogEnd::Damaged { offset, why } => {
            writeln!(out, "damaged at {offset} after {records} records: {why}")
        }
    }
}

fn record_json(record: &LogRecord) -> Value {
    let txn = &record.txn;
    let mut object = body_json(&txn.body);
    object.insert("offset".into(), record.offset.into());
    object.insert("bytes".into(), record.bytes.into());
    object.insert("zxid".into(), hex(txn.zxid).into());
    object.insert("time_ms".into(), txn.time_ms.into());
    object.insert("session".into(), hex(txn.session_id).into());
    object.insert("xid".into(), txn.cxid.into());
    let digest = record.digest.map(|digest| format!("{digest:#x}"));
    object.insert("digest".into(), digest.into());
    object.into()
}

fn body_json(body: &TxnBody) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    put("type", name(body).into());
    match body {
        TxnBody::Create {
            path,
            data,
            acl,
            lifetime,
            parent_cversion,
        } => {
            put("path", json!(&**path));
            put("data", data_json(data.as_deref()));
            put("acl", acl_json(acl));
            put("ephemeral", (*lifetime == Lifetime::Ephemeral).into());
            if let Lifetime::Ttl { ms } = lifetime {
                put("ttl_ms", (*ms).into());
            }
            put("parent_cversion", (*parent_cversion).into());
        }
        TxnBody::Delete { path } | TxnBody::DeleteContainer { path } => {
            put("path", json!(&**path));
        }
        TxnBody::SetData {
            path,
            data,
            version,
        } => {
            put("path", json!(&**path));
            put("data", data_json(data.as_deref()));
            put("version", (*version).into());
        }
        TxnBody::SetAcl { path, acl, version } => {
            put("path", json!(&**path));
            put("acl", acl_json(acl));
            put("version", (*version).into());
        }
        TxnBody::Check { path, version } => {
            put("path", json!(&**path));
            put("version", (*version).into());
        }
        TxnBody::Multi(parts) => {
            let parts: Vec<Value> = parts.iter().map(|part| body_json(part).into()).collect();
            put("parts", parts.into());
        }
        TxnBody::Error(code) => put("code", (*code).into()),
        TxnBody::CreateSession { timeout_ms } => put("timeout_ms", (*timeout_ms).into()),
        TxnBody::CloseSession { paths } => {
            let paths: Vec<Value> = paths.iter().map(|path| json!(&**path)).collect();
            put("paths", paths.into());
        }
    }
    object
}

fn end_json(end: &LogEnd, records: u64) -> Value {
    match end {
        LogEnd::Clean => json!({"end": "clean", "records": records}),
        LogEnd::Torn { offset, why } => {
            json!({"end": "torn", "records": records, "offset": offset, "why": why})
        }
        LogEnd::Damaged { offset, why } => {
            json!({"end": "damaged", "records": records, "offset": offset, "why": why})
        }
    }
}

/// The name of a transaction type in Apache's tools.
fn name(body: &TxnBody) -> &'static str {
    match body {
        TxnBody::Create {
            lifetime: Lifetime::Container,
            ..
        } => "createContainer",
        TxnBody::Create {
            lifetime: Lifetime::Ttl { .. },
            ..
        } => "createTTL",
        TxnBody::Create { .. } => "create",
        TxnBody::Delete { .. } => "delete",
        TxnBody::DeleteContainer { .. } => "deleteContainer",
        TxnBody::SetData { .. } => "setData",
        TxnBody::SetAcl { .. } => "setACL",
        TxnBody::Check { .. } => "check",
        TxnBody::Multi(_) => "multi",
        TxnBody::Error(_) => "error",
        TxnBody::CreateSession { .. } => "createSession",
        TxnBody::CloseSession { .. } => "closeSession",
    }
}
