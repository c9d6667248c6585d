//! `cons`, and the connection lines in other answers.

use std::fmt;

use crate::client::PeerAddress;
use crate::stats::Summary;

/// What is shown of a connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionReport {
    pub(crate) peer: PeerAddress,
    pub(crate) interest: Interest,
    /// Requests not answered yet.
    pub(crate) queued: usize,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) session: Option<SessionReport>,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Nothing more, such as the connection that sent the word.
    Nothing,
    Reading,
    /// To be read again, once its pending replies are written.
    Writing,
    ReadingAndWriting,
}

impl Interest {
    /// The mask of a Java `SelectionKey`.
    fn mask(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Reading => 1,
            Self::Writing => 4,
            Self::ReadingAndWriting => 5,
        }
    }
}

/// What is shown of a connection that has a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionReport {
    pub(crate) id: i64,
    /// Short name of the last operation, `NA` for none since the start or a reset.
    pub(crate) last_operation: &'static str,
    /// When the connection was opened, in wall-clock milliseconds.
    pub(crate) established_ms: i64,
    pub(crate) timeout_ms: i32,
    /// The last xid that was not negative, if any.
    pub(crate) last_xid: Option<i32>,
    /// Zxid of the last reply, -1 if there was none.
    pub(crate) last_zxid: i64,
    /// When the last reply was sent, in wall-clock milliseconds. Apache shows a monotonic clock here.
    pub(crate) last_response_ms: i64,
    pub(crate) last_latency_ms: u64,
    pub(crate) latency_ms: Summary,
}

/// The answer to `cons`.
pub(crate) fn cons(connections: &[ConnectionReport]) -> String {
    let lines: String = connections
        .iter()
        .map(|connection| {
            let session = connection.session.as_ref().map(session).unwrap_or_default();
            format!("{}{session})\n", brief(connection))
        })
        .collect();
    lines + "\n"
}

/// The common part of `stat` and `cons`, up to the closing parenthesis.
pub(super) fn brief(connection: &ConnectionReport) -> String {
    let ConnectionReport {
        peer,
        interest,
        queued,
        received,
        sent,
        session: _,
    } = connection;
    format!(
        " {}[{:x}](queued={queued},recved={received},sent={sent}",
        JavaAddress(*peer),
        interest.mask()
    )
}

fn session(session: &SessionReport) -> String {
    let SessionReport {
        id,
        last_operation,
        established_ms,
        timeout_ms,
        last_xid,
        last_zxid,
        last_response_ms,
        last_latency_ms,
        latency_ms,
    } = session;
    let last_xid = last_xid
        .map(|xid| format!(",lcxid=0x{xid:x}"))
        .unwrap_or_default();
    let (min, average, max) = (latency_ms.min(), latency_ms.whole_average(), latency_ms.max);
    format!(
        ",sid=0x{id:x},lop={last_operation},est={established_ms},to={timeout_ms}{last_xid},\
         lzxid=0x{last_zxid:x},lresp={last_response_ms},llat={last_latency_ms},\
         minlat={min},avglat={average},maxlat={max}"
    )
}

/// An address as Java's `InetSocketAddress.toString` prints it when it was not resolved.
pub(super) struct JavaAddress(pub(super) PeerAddress);

impl fmt::Display for JavaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerAddress::Tcp(address) = self.0 else {
            return write!(f, "/{}", self.0);
        };
        let port = address.port();
        match address.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => write!(f, "/{ip}:{port}"),
            std::net::IpAddr::V6(ip) => {
                // Java does not compress zeros.
                let parts = ip.segments().map(|part| format!("{part:x}"));
                write!(f, "/[{}]:{port}", parts.join(":"))
            }
        }
    }
}

#[cfg(test)]
pub(super) fn samples() -> [ConnectionReport; 2] {
    let with_session = ConnectionReport {
        peer: PeerAddress::Tcp("127.0.0.1:38202".parse().unwrap()),
        interest: Interest::Reading,
        queued: 0,
        received: 206,
        sent: 207,
        session: Some(SessionReport {
            id: 0x100_001f_f0de_0000,
            last_operation: "SETD",
            established_ms: 1_794_792_814_219,
            timeout_ms: 10_000,
            last_xid: Some(0xcd),
            last_zxid: 0xce,
            last_response_ms: 2_094_395,
            last_latency_ms: 1,
            latency_ms: Summary {
                min: 0,
                max: 11,
                sum: 204,
                count: 206,
            },
        }),
    };
    let asking = ConnectionReport {
        peer: PeerAddress::Tcp("127.0.0.1:38290".parse().unwrap()),
        interest: Interest::Nothing,
        queued: 0,
        received: 1,
        sent: 0,
        session: None,
    };
    [with_session, asking]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_carry_more_fields_and_a_blank_line_ends_the_list() {
        assert_eq!(
            cons(&samples()),
            " /127.0.0.1:38202[1](queued=0,recved=206,sent=207,sid=0x100001ff0de0000,lop=SETD,\
             est=1794792814219,to=10000,lcxid=0xcd,lzxid=0xce,lresp=2094395,llat=1,minlat=0,\
             avglat=0,maxlat=11)\n \
             /127.0.0.1:38290[0](queued=0,recved=1,sent=0)\n\n"
        );
        assert_eq!(cons(&[]), "\n");
    }

    #[test]
    fn after_a_reset_there_is_no_xid_and_the_zxid_is_minus_one() {
        let [mut connection, _] = samples();
        connection.received = 0;
        connection.sent = 0;
        connection.session = Some(SessionReport {
            last_operation: "NA",
            last_xid: None,
            last_zxid: -1,
            last_response_ms: 0,
            last_latency_ms: 0,
            latency_ms: Summary {
                min: u64::MAX,
                ..Summary::default()
            },
            ..connection.session.unwrap()
        });
        assert_eq!(
            cons(&[connection]),
            " /127.0.0.1:38202[1](queued=0,recved=0,sent=0,sid=0x100001ff0de0000,lop=NA,\
             est=1794792814219,to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,\
             avglat=0,maxlat=0)\n\n"
        );
    }

    #[test]
    fn addresses_print_as_in_java() {
        let print = |text: &str| JavaAddress(PeerAddress::Tcp(text.parse().unwrap())).to_string();
        assert_eq!(print("[::1]:42876"), "/[0:0:0:0:0:0:0:1]:42876");
        assert_eq!(print("[::ffff:10.0.0.7]:1"), "/10.0.0.7:1");
    }
}
