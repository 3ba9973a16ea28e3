//! Threads that share the work of one op after the other.
//!
//! A step is many short ops, so threads wait for the next one without sleeping for a while: handing work out and waiting for it
//! takes less than a microsecond, where waking a thread takes a hundred. A thread that has not begun by the time that all work
//! is taken is not waited for.
//!
//! # Safety
//! A thread reads the job only after it has changed its slot from `OFFERED` to `TAKEN`. The caller leaves only when each slot
//! that it offered is `IDLE` again, also where it panics: the job, which lies on its stack, outlives all who read it.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use web_time::Instant;

/// How long a thread waits for work before it sleeps: longer than most gaps between the ops of a training.
const WAIT: Duration = Duration::from_millis(2);
/// Looks at the slot between looks at the clock.
const LOOKS: usize = 64;

const IDLE: usize = 0;
const OFFERED: usize = 1;
const TAKEN: usize = 2;
const ASLEEP: usize = 3;
const CLOSED: usize = 4;

/// On a cache line of its own, and the next, which processors fetch along with it.
#[repr(align(128))]
struct Apart<T>(T);

/// Work that threads share: called on each with its number.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

struct Shared {
    job: UnsafeCell<Option<Job<'static>>>,
    slots: Vec<Apart<AtomicUsize>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// Sound: the job is read and written as the head of this file says.
unsafe impl Sync for Shared {}
// Sound: likewise.
unsafe impl Send for Shared {}

/// The thread that calls, and some more.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<(Thread, Option<JoinHandle<()>>)>,
    is_busy: AtomicBool,
}

impl Pool {
    /// So many threads, with the one that calls. Where the system gives no more, there are fewer.
    pub(super) fn new(threads: usize) -> Self {
        let wanted = if cfg!(target_arch = "wasm32") { 0 } else { threads.saturating_sub(1) };
        let slots = (0..wanted).map(|_| Apart(AtomicUsize::new(IDLE))).collect();
        let shared = Arc::new(Shared { job: UnsafeCell::new(None), slots, panic: Mutex::new(None) });
        let start = |number: usize| {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name(format!("tightfit-{}", number + 1));
            let handle = builder.spawn(move || shared.serve(number)).ok()?;
            Some((handle.thread().clone(), Some(handle)))
        };
        let threads = (0..wanted).map_while(start).collect();
        Pool { shared, threads, is_busy: AtomicBool::new(false) }
    }

    /// Threads, with the one that calls.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `work` with each task, and the number of the thread that it is called on. Each thread begins with a share of its
    /// own, the same in every call with as many tasks, and then takes what others have not begun.
    pub(super) fn each<T: Send>(&self, tasks: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
        let helpers = self.threads.len().min(tasks.len().saturating_sub(1));
        if helpers == 0 || self.is_busy.swap(true, Ordering::Acquire) {
            tasks.iter_mut().for_each(|task| work(0, task));
            return;
        }
        let shares = helpers + 1;
        let start = |share: usize| share * tasks.len() / shares;
        let next: Vec<_> = (0..shares).map(|share| Apart(AtomicUsize::new(start(share)))).collect();
        let ends: Vec<_> = (0..shares).map(|share| start(share + 1)).collect();
        let all = Tasks(tasks.as_mut_ptr());
        let take = |thread: usize| {
            let all = &all;
            for i in 0..shares {
                let share = (thread + i) % shares;
                loop {
                    let task = next[share].0.fetch_add(1, Ordering::Relaxed);
                    if task >= ends[share] {
                        break;
                    }
                    // Sound: each number is given out once, and is below the number of tasks.
                    work(thread, unsafe { &mut *all.0.add(task) });
                }
            }
        };
        let own = self.share(helpers, &take);
        self.is_busy.store(false, Ordering::Release);
        let others = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = own.err().or(others) {
            resume_unwind(panic);
        }
    }

    /// Runs the job on this thread and so many others that come in time. A panic on this one is returned.
    fn share(&self, helpers: usize, job: Job<'_>) -> std::thread::Result<()> {
        // Sound: no thread reads the job any more when this returns or unwinds, because `Offer` waits for that.
        unsafe { *self.shared.job.get() = Some(std::mem::transmute::<Job<'_>, Job<'static>>(job)) };
        let offer = Offer { slots: &self.shared.slots[..helpers] };
        for (slot, (thread, _)) in offer.slots.iter().zip(&self.threads) {
            if slot.0.swap(OFFERED, Ordering::AcqRel) == ASLEEP {
                thread.unpark();
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| job(0)));
        drop(offer);
        result
    }
}

struct Tasks<T>(*mut T);

// Sound: each task is given to one thread.
unsafe impl<T: Send> Sync for Tasks<T> {}

/// Work that was offered to threads; at its end it waits for those that took it.
struct Offer<'a> {
    slots: &'a [Apart<AtomicUsize>],
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        for slot in self.slots {
            if slot.0.compare_exchange(OFFERED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                continue;
            }
            let mut looks = 0;
            while slot.0.load(Ordering::Acquire) == TAKEN {
                looks += 1;
                // A thread that lost its core must get one.
                if looks % 4096 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        }
    }
}

impl Shared {
    /// What a thread does: waits for work, and does it.
    fn serve(&self, number: usize) {
        let slot = &self.slots[number].0;
        let mut idle_since = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if slot.load(Ordering::Relaxed) != IDLE {
                    break;
                }
                std::hint::spin_loop();
            }
            match slot.load(Ordering::Relaxed) {
                CLOSED => return,
                OFFERED => {
                    if slot.compare_exchange(OFFERED, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_err() {
                        continue;
                    }
                    // Sound: the job was there before it was offered, and stays until the slot is idle.
                    let job = unsafe { (*self.job.get()).expect("bug: an offer without work") };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(number + 1))) {
                        *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                    }
                    slot.store(IDLE, Ordering::Release);
                    idle_since = Instant::now();
                }
                _ if idle_since.elapsed() < WAIT => {}
                _ => {
                    if slot.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                        while slot.load(Ordering::Acquire) == ASLEEP {
                            std::thread::park();
                        }
                        idle_since = Instant::now();
                    }
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (slot, (thread, handle)) in self.shared.slots.iter().zip(&mut self.threads) {
            slot.0.store(CLOSED, Ordering::Release);
            thread.unpark();
            if let Some(handle) = handle.take() {
                // A thread that panicked has said so.
                let _ = handle.join();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} threads", self.threads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whoever_runs_it() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for round in 0..300 {
                let mut tasks: Vec<usize> = vec![0; round % 17];
                pool.each(&mut tasks, |thread, task| {
                    assert!(thread < threads);
                    *task += 1;
                });
                assert!(tasks.iter().all(|&runs| runs == 1), "{threads} threads: {tasks:?}");
                if round % 100 == 0 {
                    std::thread::sleep(WAIT * 2);
                }
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for bad in 0..6 {
            let mut tasks: Vec<usize> = (0..6).collect();
            let result = catch_unwind(AssertUnwindSafe(|| pool.each(&mut tasks, |_, task| assert_ne!(*task, bad))));
            assert!(result.is_err());
            // On all threads at once.
            let result = catch_unwind(AssertUnwindSafe(|| pool.each(&mut tasks, |_, _| panic!("each"))));
            assert!(result.is_err());
            let mut tasks = vec![0; 6];
            pool.each(&mut tasks, |_, task| *task += 1);
            assert_eq!(tasks, [1; 6]);
        }
    }

    #[test]
    fn work_within_work_runs_where_it_is() {
        let pool = Pool::new(2);
        let mut tasks = vec![[0; 5]; 4];
        pool.each(&mut tasks, |_, inner| pool.each(inner, |_, task| *task += 1));
        assert_eq!(tasks, [[1; 5]; 4]);
    }
}
