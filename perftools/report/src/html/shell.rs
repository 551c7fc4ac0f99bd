//! The shell of a page: its head, and the style that all pages have.

/// The style of all pages.
const STYLE: &str = include_str!("page.css");

/// Returns a page with this title and this body. `style` is added to the style of all pages. The
/// title, the style and the body are HTML: texts of a record in them must be escaped.
///
/// The page is self-contained, and its content security policy forbids scripts and external
/// resources.
pub fn shell(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n\
        <html lang=\"en\">\n\
        <head>\n\
        <meta charset=\"utf-8\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <title>{title}</title>\n\
        <style>\n{STYLE}{style}</style>\n\
        </head>\n\
        <body>\n<h1>{title}</h1>\n{body}</body>\n\
        </html>\n"
    )
}
