//! A peer's yes is answered once.

use rdmacm::Answer;

fn establish(answer: Answer) {
    let _link = answer.establish();
    let _no = answer.reject(b"");
}

fn main() {}
