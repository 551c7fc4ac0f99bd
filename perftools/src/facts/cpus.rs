//! Lists of processors.

/// The numbers of a list, `0-3,8` as the kernel and its users write it; none where it is no list,
/// or one of more processors than there are numbers for.
pub fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || all.len() > u16::MAX.into() {
            return None;
        }
        all.extend((first..=last).map(usize::from));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(super::list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        for bad in ["", "3-1", "a", "1,,2", "-1", "99999999"] {
            assert_eq!(super::list(bad), None, "{bad}");
        }
        // What a client says comes from anybody.
        assert_eq!(super::list(&vec!["0-65535"; 8000].join(",")), None);
    }
}
