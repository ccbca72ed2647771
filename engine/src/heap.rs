//! What glibc's allocator does with memory that has been freed.

/// Keeps up to so many freed bytes in each of the allocator's arenas for what is allocated next.
///
/// glibc returns large buffers to the system and takes them back a page fault at a time, in every step of training and for
/// every large frame. Whether it does depends on how the heap happens to be laid out; it costs a step up to a tenth of its
/// time, and the relay of large frames up to a fifth. Elsewhere this does nothing.
pub fn keep_freed(bytes: u32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest that glibc takes for a buffer that is not mapped by itself.
        const LARGEST: libc::c_int = 32 << 20;
        let kept = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two numbers and touches no memory of ours. At worst it refuses a value, and nothing has
        // changed.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}
