//! Locks of every kind, and semaphores.

mod fair;
mod faults;
mod histories;
mod hundred_writers;
mod multi;
mod reentrant;
mod rwlock;
mod semaphore;
mod simple;
