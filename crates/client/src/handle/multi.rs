//! Several operations in one request.

use bellwether_wire::multi::{self, ResultHeader};
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bellwether_wire::stat::Stat;
use bytes::{Bytes, BytesMut};

use crate::core::requests::Answer;
use crate::error::{Error, ErrorCode};
use crate::handle::client::Client;
use crate::handle::create::CreateOptions;
use crate::handle::ops::{ANY_VERSION, read_data_stat};
use crate::handle::reply::{Reply, ReplyContext, decode_body};
use crate::handle::watch::strip;

/// Writes that all happen or none does, in the order in which they were added.
///
/// ```no_run
/// # async fn run(client: bellwether_client::Client) -> Result<(), bellwether_client::MultiError> {
/// use bellwether_client::CreateMode;
///
/// let mut multi = client.new_multi();
/// multi.check("/lock/holder", None);
/// multi.create("/done/7", b"ok", CreateMode::Persistent);
/// multi.delete("/tasks/7", Some(3));
/// multi.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent until this is committed"]
pub struct Multi<'a> {
    client: &'a Client,
    ops: BytesMut,
    /// Why it cannot be sent.
    invalid: Option<Error>,
    /// Whether it has operations that servers before 3.5 lack.
    has_newer_ops: bool,
}

/// The result of one write of a [`Multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult {
    /// A node was created.
    Created {
        /// Its path, with the number of a sequential node.
        path: String,
    },
    /// The data of a node was changed.
    Set(Stat),
    /// A node was deleted.
    Deleted,
    /// A check passed.
    Checked,
}

/// Why a [`Multi`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiError {
    /// One write was refused, so none took effect.
    #[error("operation {index}: {code}")]
    Refused {
        /// The index of that write, counted from 0.
        index: usize,
        /// The reason.
        code: ErrorCode,
    },
    /// The request as a whole failed.
    #[error(transparent)]
    Request(#[from] Error),
}

impl From<MultiError> for Error {
    fn from(error: MultiError) -> Self {
        match error {
            MultiError::Refused { code, .. } => Self::Refused(code),
            MultiError::Request(error) => error,
        }
    }
}

impl Client {
    /// Begins a list of writes that all happen or none does.
    pub fn new_multi(&self) -> Multi<'_> {
        Multi {
            client: self,
            ops: BytesMut::new(),
            invalid: None,
            has_newer_ops: false,
        }
    }

    /// Begins a list of reads in one request. Servers before 3.6 have no such request: they get the reads one by one, and writes of other
    /// clients may happen between them.
    pub fn new_multi_read(&self) -> MultiRead<'_> {
        MultiRead {
            client: self,
            ops: BytesMut::new(),
            invalid: None,
        }
    }
}

impl Multi<'_> {
    /// Checks that a node exists, in this version or in any.
    pub fn check(&mut self, path: &str, version: Option<i32>) {
        self.add(path, Op::Check, |out, path| {
            request::put_path_version(out, path, version.unwrap_or(ANY_VERSION));
        });
    }

    /// Creates a node. Unlike [`Client::create`], it does not answer with the [`Stat`]: not all servers send it in a multi. All writes of
    /// a multi have the same zxid, so the `mzxid` of a [`set`](Self::set) in it is also the `czxid` of the new node.
    pub fn create(&mut self, path: &str, data: &[u8], options: impl Into<CreateOptions>) {
        let options = options.into();
        let full = match options.mode().is_sequential() {
            true => self.client.full_prefix(path),
            false => self.client.full_path(path),
        };
        match (full, options.ttl_ms()) {
            (Ok(path), Ok(ttl_ms)) => {
                let op = match options.op() {
                    Op::Create2 => Op::Create,
                    newer => newer,
                };
                self.has_newer_ops |= op != Op::Create;
                multi::put_op(&mut self.ops, op);
                options.put(&mut self.ops, &path, data, ttl_ms);
            }
            (Err(error), _) => self.invalid = Some(error.into()),
            (_, Err(error)) => self.invalid = Some(error),
        }
    }

    /// Changes the data of a node: of this version, or of any.
    pub fn set(&mut self, path: &str, data: &[u8], version: Option<i32>) {
        self.add(path, Op::SetData, |out, path| {
            request::put_set_data(out, path, Some(data), version.unwrap_or(ANY_VERSION));
        });
    }

    /// Deletes a node: of this version, or of any.
    pub fn delete(&mut self, path: &str, version: Option<i32>) {
        self.add(path, Op::Delete, |out, path| {
            request::put_path_version(out, path, version.unwrap_or(ANY_VERSION));
        });
    }

    /// The bytes of the request, to compare with [`Limits::request_bytes_max`](crate::Limits::request_bytes_max).
    pub fn bytes(&self) -> usize {
        const HEADER_AND_END: usize = 8 + 9;
        self.ops.len() + HEADER_AND_END
    }

    /// Sends the list. The answer has one result for each operation. It is [`Error::UNIMPLEMENTED`] if the servers do not know one of them.
    pub fn commit(self) -> MultiReply {
        let Self {
            client,
            ops,
            invalid,
            has_newer_ops,
        } = self;
        let decode = match has_newer_ops {
            true => written_if_known,
            false => written,
        };
        MultiReply(match invalid {
            Some(error) => Reply::failed(error, decode),
            None => client.send(Op::Multi, decode, |out| {
                out.extend_from_slice(&ops);
                multi::put_end(out);
            }),
        })
    }

    fn add(&mut self, path: &str, op: Op, body: impl FnOnce(&mut BytesMut, &str)) {
        match self.client.full_path(path) {
            Ok(path) => {
                multi::put_op(&mut self.ops, op);
                body(&mut self.ops, &path);
            }
            Err(error) => self.invalid = Some(error.into()),
        }
    }
}

/// The answer to a [`Multi`].
#[derive(Debug)]
#[must_use = "the outcome of the request is in here"]
pub struct MultiReply(Reply<Written>);

impl Future for MultiReply {
    type Output = Result<Vec<MultiResult>, MultiError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or_else(|error| Err(error.into())))
    }
}

pub(crate) type Written = Result<Vec<MultiResult>, MultiError>;

/// Servers cannot parse a list with an operation that they do not know, and say so (`MultiOperationRecord.deserialize`).
fn written_if_known(answer: Answer, context: ReplyContext) -> Result<Written, Error> {
    match answer {
        Err(Error::Refused(ErrorCode::MarshallingError)) => Err(Error::UNIMPLEMENTED),
        answer => written(answer, context),
    }
}

pub(crate) fn written(answer: Answer, context: ReplyContext) -> Result<Written, Error> {
    decode_body(&answer?, |reader| {
        let mut results = Vec::new();
        let mut failed = None;
        let mut index = 0;
        loop {
            let result = match ResultHeader::decode(reader)? {
                ResultHeader::End => break,
                ResultHeader::Done(Op::Create) => MultiResult::Created {
                    path: strip(reader.string()?, context.chroot_bytes),
                },
                ResultHeader::Done(Op::Create2 | Op::CreateContainer | Op::CreateTtl) => {
                    let path = strip(reader.string()?, context.chroot_bytes);
                    Stat::decode(reader)?;
                    MultiResult::Created { path }
                }
                ResultHeader::Done(Op::SetData) => MultiResult::Set(Stat::decode(reader)?),
                ResultHeader::Done(Op::Delete) => MultiResult::Deleted,
                ResultHeader::Done(Op::Check) => MultiResult::Checked,
                ResultHeader::Done(_) => return Err(bellwether_wire::jute::Malformed),
                ResultHeader::Failed(err) => {
                    // The operations before the refused one have 0, those after it a code of their own.
                    if err != 0 && failed.is_none() {
                        failed = Some((index, err));
                    }
                    index += 1;
                    continue;
                }
            };
            index += 1;
            results.push(result);
        }
        Ok(match failed {
            None => Ok(results),
            Some((index, err)) => match Error::of_code(err) {
                Error::Refused(code) => Err(MultiError::Refused { index, code }),
                error => Err(MultiError::Request(error)),
            },
        })
    })
}

/// Reads in one request, each with a result of its own.
#[derive(Debug)]
#[must_use = "nothing is sent until this is committed"]
pub struct MultiRead<'a> {
    client: &'a Client,
    ops: BytesMut,
    invalid: Option<Error>,
}

/// The result of one read of a [`MultiRead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiReadResult {
    /// The data of a node.
    Data(Bytes, Stat),
    /// The names of its children.
    Children(Vec<String>),
    /// This read was refused; the others were not.
    Refused(ErrorCode),
}

impl MultiRead<'_> {
    /// Reads the data of a node.
    pub fn get(&mut self, path: &str) {
        self.add(path, Op::GetData);
    }

    /// Lists the children of a node.
    pub fn children(&mut self, path: &str) {
        self.add(path, Op::GetChildren);
    }

    /// The bytes of the reads so far, without the header and the end marker of the request.
    pub fn bytes(&self) -> usize {
        self.ops.len()
    }

    /// Sends the list. The answer has one result for each read.
    pub fn commit(self) -> Reply<Vec<MultiReadResult>> {
        let Self {
            client,
            ops,
            invalid,
        } = self;
        match invalid {
            Some(error) => Reply::failed(error, read),
            None => Reply::of(client.send_multi_read(ops), client.reply_context(), read),
        }
    }

    fn add(&mut self, path: &str, op: Op) {
        match self.client.full_path(path) {
            Ok(path) => {
                multi::put_op(&mut self.ops, op);
                request::put_path_watch(&mut self.ops, &path, false);
            }
            Err(error) => self.invalid = Some(error.into()),
        }
    }
}

pub(crate) fn read(answer: Answer, _: ReplyContext) -> Result<Vec<MultiReadResult>, Error> {
    let body = answer?;
    decode_body(&body, |reader| {
        let mut results = Vec::new();
        loop {
            results.push(match ResultHeader::decode(reader).map_err(|_| ())? {
                ResultHeader::End => return Ok(results),
                ResultHeader::Done(Op::GetData) => {
                    let (data, stat) = read_data_stat(&body, reader).map_err(|_| ())?;
                    MultiReadResult::Data(data, stat)
                }
                ResultHeader::Done(Op::GetChildren) => {
                    MultiReadResult::Children(reader.strings().map_err(|_| ())?)
                }
                ResultHeader::Done(_) => return Err(()),
                ResultHeader::Failed(err) => match Error::of_code(err) {
                    Error::Refused(code) => MultiReadResult::Refused(code),
                    _ => return Err(()),
                },
            });
        }
    })
}
