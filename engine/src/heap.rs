//! What glibc's allocator does with memory between two steps of training.

/// Keeps the memory that a step has freed, for the next step, in a process that does nothing but train.
///
/// glibc returns large buffers to the system and takes them back a page fault at a time. Whether it does depends on how
/// the heap happens to be laid out, and costs a step up to a tenth of its time. Elsewhere this does nothing.
pub fn keep_for_next_step() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Larger than any training step's buffers together that glibc would give back.
        const KEPT: libc::c_int = 1 << 30;
        /// The largest that glibc takes for a buffer that is not mapped by itself.
        const LARGEST: libc::c_int = 32 << 20;
        // SAFETY: mallopt takes two numbers and touches no memory of ours. It is called by one thread, before others
        // allocate much; at worst it refuses a value, and nothing has changed.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
        }
    }
}
