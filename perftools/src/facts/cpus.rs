//! Lists of processors.

/// `0-3,8` as numbers; no more than the kernel's limit of processors.
pub fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(8191))
    };
    text.split(',').filter_map(range).flatten().take(8192).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn processor_lists_are_read() {
        assert_eq!(super::list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(super::list("x,-1,0-4294967295").len(), 8192);
    }
}
