use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

fn outbox(bytes_max: usize) -> Outbox {
    Outbox::new(
        bytes_max,
        Arc::new(OutboxTotal::new(usize::MAX, Arc::default())),
    )
}

fn put(outbox: &Outbox, text: &str) {
    outbox.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
}

/// Both ends of a connection.
async fn pair() -> (WriteHalf, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(client, listener.accept());
    let (_, socket) = server.unwrap().0.into_split();
    (WriteHalf::Tcp(socket), client.unwrap())
}

/// Reads all that the client of `outbox` receives until the end.
async fn read_all(outbox: &Outbox) -> Vec<u8> {
    let (socket, mut client) = pair().await;
    let mut read = Vec::new();
    let both = async { tokio::join!(outbox.write_to(socket), client.read_to_end(&mut read)) };
    timeout(LIMIT, both).await.unwrap().1.unwrap();
    read
}

#[tokio::test]
async fn what_waits_is_written_and_then_the_end() {
    let outbox = outbox(100);
    put(&outbox, "one ");
    put(&outbox, "two");
    outbox.finish();
    put(&outbox, "too late");
    assert_eq!(read_all(&outbox).await, b"one two");
}

/// The client reads slowly, so that the last bytes are few.
#[tokio::test]
async fn a_large_buffer_is_given_back_when_it_is_empty() {
    let outbox = Arc::new(outbox(usize::MAX));
    let (socket, mut client) = pair().await;
    let task = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.write_to(socket).await }
    });
    for bytes in [20 << 20, 100] {
        outbox.push(|out| out.extend_from_slice(&vec![b'x'; bytes]));
        outbox.flush();
        let mut read = vec![0; bytes];
        timeout(LIMIT, client.read_exact(&mut read))
            .await
            .unwrap()
            .unwrap();
    }
    outbox.push(|out| {
        let kept = out.capacity();
        assert!(kept <= KEPT_BYTES, "{kept} bytes kept");
    });
    outbox.finish();
    timeout(LIMIT, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let outbox = outbox(2);
    put(&outbox, "long");
    assert!(outbox.is_open(), "one reply of any size has its place");
    put(&outbox, "more");
    assert!(!outbox.is_open());
    assert_eq!(read_all(&outbox).await, b"");
}

#[tokio::test]
async fn what_is_pushed_behind_a_reserved_place_waits_for_it() {
    let outbox = outbox(100);
    put(&outbox, "one ");
    let two = outbox.reserve();
    put(&outbox, "three ");
    let four = outbox.reserve();
    put(&outbox, "five");
    outbox.finish();
    assert_eq!(outbox.len(), "one three five".len());
    outbox.fill(four, BytesMut::from("four "));
    let ending = async {
        outbox.fill(two, BytesMut::from("two "));
        outbox.flush();
    };
    let (read, ()) = tokio::join!(read_all(&outbox), ending);
    assert_eq!(read, b"one two three four five");
    assert_eq!(outbox.len(), 0);
}

#[test]
fn when_all_have_too_much_the_large_ones_are_closed() {
    let together = Arc::new(OutboxTotal::new(100 << 10, Arc::default()));
    let [large, small] = [(); 2].map(|()| Outbox::new(usize::MAX, together.clone()));
    let text = "x".repeat(90 << 10);
    put(&small, "small");
    put(&large, &text);
    put(&large, &text);
    assert_eq!(together.bytes(), 2 * text.len() + 5);
    put(&small, "small");
    assert!(
        small.is_open() && large.is_open(),
        "one reply of any size has its place"
    );
    put(&large, "more");
    assert!(small.is_open() && !large.is_open());
    assert_eq!(together.bytes(), 10);
    small.close();
    assert_eq!(together.bytes(), 0);
}

#[tokio::test]
async fn a_place_in_a_closed_outbox_is_filled_to_no_effect() {
    let outbox = outbox(100);
    let place = outbox.reserve();
    put(&outbox, "behind");
    outbox.close();
    outbox.fill(place, BytesMut::from("dropped"));
    assert_eq!(outbox.len(), 0);
    assert_eq!(read_all(&outbox).await, b"");
}

/// Threads flush while the socket fills up again and again: nothing is lost, and each thread's numbers arrive in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_threads_write_in_order_through_a_full_socket() {
    const THREADS: u8 = 4;
    const EACH: u32 = 2000;
    let outbox = Arc::new(outbox(usize::MAX));
    let (socket, mut client) = pair().await;
    let task = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.write_to(socket).await }
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let outbox = outbox.clone();
            std::thread::spawn(move || {
                for number in 0..EACH {
                    outbox.push(|bytes| {
                        bytes.extend_from_slice(&[thread; 1000]);
                        bytes.extend_from_slice(&number.to_be_bytes());
                    });
                    outbox.flush();
                }
            })
        })
        .collect();
    let mut next = [0; THREADS as usize];
    let reading = async {
        for _ in 0..u32::from(THREADS) * EACH {
            let mut frame = [0; 1004];
            client.read_exact(&mut frame).await.unwrap();
            let thread = frame[0];
            assert_eq!(frame[..1000], [thread; 1000]);
            let next = &mut next[usize::from(thread)];
            assert_eq!(frame[1000..], u32::to_be_bytes(*next));
            *next += 1;
        }
    };
    timeout(LIMIT, reading).await.unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    let put = u64::from(THREADS) * u64::from(EACH) * 1004;
    assert_eq!(outbox.together.sent_bytes(), put, "each byte counts once");
    outbox.finish();
    timeout(LIMIT, task).await.unwrap().unwrap();
}
