//! Rows and elements chosen by indices.

ops! {
    embedding,
    gather,
    one_hot,
}
