//! Work on several threads, or on fewer where the system has no memory or leave for as many.

use std::sync::OnceLock;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The results of `work` on each item, in their order, or the first error.
pub(crate) fn in_parallel<T: Send, R: Send, E: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, E> + Send + Sync,
) -> Result<Vec<R>, E> {
    match pool() {
        Some(pool) => pool.install(|| items.into_par_iter().map(work).collect()),
        None => items.into_iter().map(work).collect(),
    }
}

/// The threads of this process for such work. Rayon's own pool would panic where they cannot be started.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = |threads| {
        let name = |i| format!("tightfit-{i}");
        ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
    };
    POOL.get_or_init(|| most_threads(std::thread::available_parallelism().map_or(1, usize::from), start)).as_ref()
}

/// Half as many threads until so many can be had; one is no gain.
fn most_threads<P>(wanted: usize, start: impl Fn(usize) -> Option<P>) -> Option<P> {
    let mut numbers = std::iter::successors(Some(wanted), |&threads| Some(threads / 2));
    numbers.by_ref().take_while(|&threads| threads > 1).find_map(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_threads_do_where_many_cannot_be_had() {
        let start = |most: usize| move |threads: usize| (threads <= most).then_some(threads);
        assert_eq!(most_threads(16, start(16)), Some(16));
        assert_eq!(most_threads(16, start(5)), Some(4));
        assert_eq!(most_threads(16, start(1)), None);
        assert_eq!(most_threads(1, start(1)), None);
    }

    #[test]
    fn results_keep_their_order() {
        let work = |i: usize| if i == 70 { Err(i) } else { Ok(2 * i) };
        assert_eq!(in_parallel((0..50).collect(), work), Ok((0..50).map(|i| 2 * i).collect()));
        assert_eq!(in_parallel((60..80).collect(), work), Err(70));
    }
}
