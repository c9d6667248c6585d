//! The requests of the protocol, each as a method with a typed result.

use bellwether_wire::acl::Acl;
use bellwether_wire::jute::{Malformed, Reader};
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bellwether_wire::stat::Stat;
use bytes::{Bytes, BytesMut};

use crate::core::requests::Answer;
use crate::core::session::ANY_WATCH;
use crate::core::watches::Kind;
use crate::error::{Error, ErrorCode, Invalid, SessionEnd};
use crate::handle::client::Client;
use crate::handle::create::{CreateOptions, Created};
use crate::handle::reply::{Reply, ReplyContext, decode_body};
use crate::handle::watch::{PersistentWatch, Watch, WatchMode, strip};
use crate::options::session::Credential;

/// The node with the configuration of an ensemble.
const CONFIG: &str = "/zookeeper/config";

/// The version that matches any version of a node.
pub(crate) const ANY_VERSION: i32 = -1;

/// Writes.
impl Client {
    /// Creates a node. The answer has its path, with the number of a sequential node, and its [`Stat`].
    ///
    /// Servers before 3.5 do not answer with the Stat, so it takes a second request there. [`Error::Unknown`] is then also the error if
    /// another client deleted the node between the two.
    pub fn create(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions>,
    ) -> Reply<Created> {
        let options = options.into();
        let full = match options.mode().is_sequential() {
            true => self.full_prefix(path),
            false => self.full_path(path),
        };
        match (full, options.ttl_ms()) {
            (Ok(path), Ok(ttl_ms)) => {
                let put = |out: &mut BytesMut| options.put(out, &path, data, ttl_ms);
                match options.op() {
                    Op::Create2 => Reply::of(self.send_create2(put), self.reply_context(), created),
                    op => self.send(op, created, put),
                }
            }
            (Err(error), _) => Reply::failed(error.into(), created),
            (_, Err(error)) => Reply::failed(error, created),
        }
    }

    /// Deletes a node without children: of this version, or of any.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Reply<()> {
        self.send_at(path, Op::Delete, nothing, |out, path| {
            request::put_path_version(out, path, version.unwrap_or(ANY_VERSION));
        })
    }

    /// Changes the data of a node: of this version, or of any.
    pub fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Reply<Stat> {
        self.send_at(path, Op::SetData, stat, |out, path| {
            request::put_set_data(out, path, Some(data), version.unwrap_or(ANY_VERSION));
        })
    }

    /// Changes the access list of a node. The version is that of the list: [`Stat::aversion`].
    pub fn set_acl(&self, path: &str, acl: &[Acl], version: Option<i32>) -> Reply<Stat> {
        self.send_at(path, Op::SetAcl, stat, |out, path| {
            request::put_set_acl(out, path, acl, version.unwrap_or(ANY_VERSION));
        })
    }

    /// Changes the members of an ensemble, and answers with the new configuration. Each text is a list separated by commas: servers to add or
    /// change (`server.4=…`), ids to remove, or all members. `version` is that of the present configuration.
    pub fn reconfig(
        &self,
        joining: Option<&str>,
        leaving: Option<&str>,
        members: Option<&str>,
        version: Option<i64>,
    ) -> Reply<(Bytes, Stat)> {
        let version = version.unwrap_or(ANY_VERSION.into());
        self.send(Op::Reconfig, data_stat, |out| {
            request::put_reconfig(out, joining, leaving, members, version);
        })
    }
}

/// Reads.
impl Client {
    /// The data of a node. It shares the memory of the reply: copy data that you keep for long.
    pub fn get(&self, path: &str) -> Reply<(Bytes, Stat)> {
        self.send_at(path, Op::GetData, data_stat, |out, path| {
            request::put_path_watch(out, path, false);
        })
    }

    /// As [`get`](Self::get), and watches for the next change or deletion. A missing node leaves no watch.
    pub fn get_watched(&self, path: &str) -> Reply<(Bytes, Stat, Watch)> {
        self.read_watched(path, Op::GetData, Kind::Data, |answer, context| {
            let (body, watch) = with_watch(answer, context)?;
            let (data, stat) = decode_body(&body, |reader| read_data_stat(&body, reader))?;
            Ok((data, stat, watch))
        })
    }

    /// The [`Stat`] of a node, if there is one.
    pub fn exists(&self, path: &str) -> Reply<Option<Stat>> {
        self.send_at(
            path,
            Op::Exists,
            |answer, _| match answer {
                Err(Error::Refused(ErrorCode::NoNode)) => Ok(None),
                Err(error) => Err(error),
                Ok(body) => decode_body(&body, Stat::decode).map(Some),
            },
            |out, path| request::put_path_watch(out, path, false),
        )
    }

    /// As [`exists`](Self::exists), and watches for the next change, deletion or creation.
    pub fn exists_watched(&self, path: &str) -> Reply<(Option<Stat>, Watch)> {
        self.read_watched(path, Op::Exists, Kind::Data, |answer, context| {
            let stat = match answer {
                Err(Error::Refused(ErrorCode::NoNode)) => None,
                Err(error) => return Err(error),
                Ok(body) => Some(decode_body(&body, Stat::decode)?),
            };
            Ok((stat, take_watch(context)?))
        })
    }

    /// The names of the children of a node, in no particular order.
    pub fn children(&self, path: &str) -> Reply<Vec<String>> {
        self.send_at(
            path,
            Op::GetChildren,
            |answer, _| decode_body(&answer?, |reader| reader.strings()),
            |out, path| request::put_path_watch(out, path, false),
        )
    }

    /// As [`children`](Self::children), and watches for the next child that is created or deleted. A missing node leaves no watch.
    pub fn children_watched(&self, path: &str) -> Reply<(Vec<String>, Watch)> {
        self.read_watched(path, Op::GetChildren, Kind::Child, |answer, context| {
            let (body, watch) = with_watch(answer, context)?;
            Ok((decode_body(&body, |reader| reader.strings())?, watch))
        })
    }

    /// The names of the children, and the [`Stat`] of the node itself.
    pub fn children_stat(&self, path: &str) -> Reply<(Vec<String>, Stat)> {
        self.send_at(
            path,
            Op::GetChildren2,
            |answer, _| decode_body(&answer?, read_children_stat),
            |out, path| request::put_path_watch(out, path, false),
        )
    }

    /// As [`children_stat`](Self::children_stat), and watches for the next child that is created or deleted.
    pub fn children_stat_watched(&self, path: &str) -> Reply<(Vec<String>, Stat, Watch)> {
        self.read_watched(path, Op::GetChildren2, Kind::Child, |answer, context| {
            let (body, watch) = with_watch(answer, context)?;
            let (children, stat) = decode_body(&body, read_children_stat)?;
            Ok((children, stat, watch))
        })
    }

    /// The access list of a node.
    pub fn acl(&self, path: &str) -> Reply<(Vec<Acl>, Stat)> {
        self.send_at(
            path,
            Op::GetAcl,
            |answer, _| {
                decode_body(&answer?, |reader| {
                    let acl = reader.vector(Acl::decode)?.ok_or(Malformed)?;
                    Ok::<_, Malformed>((acl, Stat::decode(reader)?))
                })
            },
            request::put_path,
        )
    }

    /// The number of all nodes below a node.
    pub fn count_descendants(&self, path: &str) -> Reply<usize> {
        self.send_at(
            path,
            Op::GetAllChildrenNumber,
            |answer, _| {
                let count = decode_body(&answer?, |reader| reader.int())?;
                usize::try_from(count).map_err(|_| Error::Unknown)
            },
            request::put_path,
        )
    }

    /// The ephemeral nodes of this session whose paths begin with `prefix`: a plain text, `/` for all.
    pub fn ephemerals(&self, prefix: &str) -> Reply<Vec<String>> {
        let decode = |answer: Answer, context: ReplyContext| {
            let paths = decode_body(&answer?, |reader| reader.strings())?;
            let bytes = context.chroot_bytes;
            // The servers compare texts: `/team` is also the beginning of `/teamwork`.
            let is_below = |path: &String| matches!(path.as_bytes().get(bytes), None | Some(b'/'));
            let below = paths.into_iter().filter(is_below);
            Ok(below.map(|path| strip(path, bytes)).collect())
        };
        match self.full_prefix(prefix) {
            Ok(prefix) => self.send(Op::GetEphemerals, decode, |out| {
                request::put_path(out, &prefix);
            }),
            Err(error) => Reply::failed(error.into(), decode),
        }
    }

    /// Waits until the server of this session has caught up with the leader. A read sent after it sees every write that was
    /// acknowledged to any client before.
    pub fn sync(&self, path: &str) -> Reply<()> {
        self.send_at(path, Op::Sync, nothing, request::put_path)
    }

    /// The configuration of an ensemble; empty for a single server.
    pub fn config(&self) -> Reply<(Bytes, Stat)> {
        self.at_root().get(CONFIG)
    }

    /// As [`config`](Self::config), and watches for the next change.
    pub fn config_watched(&self) -> Reply<(Bytes, Stat, Watch)> {
        self.at_root().get_watched(CONFIG)
    }

    /// The identities of this connection: pairs of scheme and user.
    pub fn who_am_i(&self) -> Reply<Vec<(String, String)>> {
        self.send(
            Op::WhoAmI,
            |answer, _| {
                decode_body(&answer?, |reader| {
                    let info = |reader: &mut Reader<'_>| Ok((reader.string()?, reader.string()?));
                    reader.vector(info)?.ok_or(Malformed)
                })
            },
            |_| {},
        )
    }

    fn read_watched<T>(
        &self,
        path: &str,
        op: Op,
        kind: Kind,
        decode: crate::handle::reply::Decode<T>,
    ) -> Reply<T> {
        match self.full_path(path) {
            Err(error) => Reply::failed(error.into(), decode),
            Ok(path) => self.send_watched(op, kind, path.clone(), decode, |out| {
                request::put_path_watch(out, &path, true);
            }),
        }
    }
}

/// Persistent watches, and credentials.
impl Client {
    /// Arms a persistent watch, until its handle is dropped. The node need not exist.
    ///
    /// Servers before 3.9 keep one mode for each path and connection, so this client refuses a second mode at the same path.
    pub fn watch(&self, path: &str, mode: WatchMode) -> Reply<PersistentWatch> {
        let kind = match mode {
            WatchMode::Persistent => Kind::Persistent,
            WatchMode::Recursive => Kind::Recursive,
        };
        let decode = |answer: Answer, context: ReplyContext| {
            answer?;
            let watch = context
                .watch
                .and_then(crate::handle::watch::Armed::into_stream);
            watch.ok_or(Error::Unknown)
        };
        match self.full_path(path) {
            Err(error) => Reply::failed(error.into(), decode),
            Ok(path)
                if self
                    .shared()
                    .look(|session| session.has_other_watch_mode(kind, &path)) =>
            {
                Reply::failed(Error::Invalid(Invalid::WatchMode), decode)
            }
            Ok(path) => self.send_watched(Op::AddWatch, kind, path.clone(), decode, |out| {
                request::put_path_number(out, &path, i32::from(kind == Kind::Recursive));
            }),
        }
    }

    /// Removes all watches of this session at a path. Their handles fail with [`Error::NO_WATCHER`]; so does this call if there are none.
    ///
    /// To end one watch, drop its handle.
    pub fn remove_watches(&self, path: &str) -> Reply<()> {
        let request = self.full_path(path).map_err(Error::from).and_then(|path| {
            let now = crate::clock::Moment::now();
            self.shared()
                .with(|session| session.remove_watches(now, &path))
        });
        Reply::of(self.answering(request), ReplyContext::default(), nothing)
    }

    /// Whether the server has a watch at a path: one of this session, before 3.9 of any session.
    pub fn check_watches(&self, path: &str) -> Reply<bool> {
        self.send_at(
            path,
            Op::CheckWatches,
            |answer, _| match answer {
                Ok(_) => Ok(true),
                Err(Error::NO_WATCHER) => Ok(false),
                Err(error) => Err(error),
            },
            |out, path| request::put_path_number(out, path, ANY_WATCH),
        )
    }

    /// Authenticates, on this connection and on each later one.
    ///
    /// A refusal ends the session, because the servers close the connection. Without a connection this succeeds at once: the credential is
    /// sent with the next one.
    pub fn auth(&self, scheme: &str, secret: &[u8]) -> Reply<()> {
        let credential = Credential::new(scheme, secret);
        let request = self
            .shared()
            .with(|session| session.auth(crate::clock::Moment::now(), credential));
        Reply::new(request, ReplyContext::default(), |answer, _| match answer {
            Ok(_) => Ok(()),
            Err(Error::Refused(_)) => Err(Error::SessionEnded(SessionEnd::AuthFailed)),
            Err(error) => Err(error),
        })
    }
}

// --- answers ----------------------------------------------------------------------------------

pub(crate) fn nothing(answer: Answer, _: ReplyContext) -> Result<(), Error> {
    answer.map(drop)
}

fn stat(answer: Answer, _: ReplyContext) -> Result<Stat, Error> {
    decode_body(&answer?, Stat::decode)
}

fn created(answer: Answer, context: ReplyContext) -> Result<Created, Error> {
    decode_body(&answer?, |reader| {
        Ok::<_, Malformed>(Created {
            path: strip(reader.string()?, context.chroot_bytes),
            stat: Stat::decode(reader)?,
        })
    })
}

fn data_stat(answer: Answer, _: ReplyContext) -> Result<(Bytes, Stat), Error> {
    let body = answer?;
    decode_body(&body, |reader| read_data_stat(&body, reader))
}

/// Data without a copy: it shares the memory of the reply.
pub(crate) fn read_data_stat(
    body: &Bytes,
    reader: &mut Reader<'_>,
) -> Result<(Bytes, Stat), Malformed> {
    let length = usize::try_from(reader.clone().int()?).unwrap_or_default();
    let start = body.len() - reader.rest().len() + 4;
    reader.buffer()?;
    Ok((body.slice(start..start + length), Stat::decode(reader)?))
}

fn read_children_stat(reader: &mut Reader<'_>) -> Result<(Vec<String>, Stat), Malformed> {
    Ok((reader.strings()?, Stat::decode(reader)?))
}

fn with_watch(answer: Answer, context: ReplyContext) -> Result<(Bytes, Watch), Error> {
    Ok((answer?, take_watch(context)?))
}

fn take_watch(context: ReplyContext) -> Result<Watch, Error> {
    let watch = context
        .watch
        .and_then(crate::handle::watch::Armed::into_watch);
    watch.ok_or(Error::Unknown)
}
