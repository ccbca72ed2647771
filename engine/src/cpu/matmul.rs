//! Matrix products through the crate `gemm`.

/// A matrix inside a slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` x `columns`, row major.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Row major with `stride` numbers from one row to the next.
    pub(crate) fn strided(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(span(rows, columns, stride) <= values.len(), "a matrix must lie inside its slice");
        Matrix { values, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// The transposed matrix, without moving anything.
    pub(crate) fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Numbers from the first of a row major matrix to its last, both included.
fn span(rows: usize, columns: usize, stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride + columns }
}

/// What becomes of the numbers already at the destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    Replace,
    Add,
}

/// `target (+)= scale * a b`, the target row major with `stride` numbers from one row to the next.
///
/// `threads`: whether this product may use several; not inside a piece of work that has siblings.
pub(crate) fn multiply(
    target: &mut [f32],
    stride: usize,
    into: Into,
    scale: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    threads: bool,
) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "inner sizes of a product must be equal");
    assert!(span(m, n, stride) <= target.len(), "a product must fit its target");
    // SAFETY: the asserts here and in `Matrix::strided` keep every access inside the three slices, and the
    // target is borrowed exclusively. With `Replace` gemm does not read it.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            target.as_mut_ptr(),
            1,
            stride as isize,
            into == Into::Add,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism(threads, m * n * k),
        );
    }
}

/// `target (+)= a b` over contiguous rows, on every thread.
pub(crate) fn product(target: &mut [f32], into: Into, a: Matrix<'_>, b: Matrix<'_>) {
    multiply(target, b.columns, into, 1.0, a, b, true);
}

#[cfg(not(web))]
fn parallelism(threads: bool, operations: usize) -> gemm::Parallelism {
    // Below some 100 microseconds of work a second thread costs more than it brings.
    if threads && operations >= 1 << 21 { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None }
}

#[cfg(web)]
fn parallelism(_threads: bool, _operations: usize) -> gemm::Parallelism {
    gemm::Parallelism::None
}

/// Backward pass of `y = x w + b` with x [rows, inputs] and w [inputs, outputs]: adds to the gradients of w and
/// b, and returns that of x.
pub(crate) fn linear_backward(
    dy: &[f32],
    x: &[f32],
    rows: usize,
    (w, dw): (&[f32], &mut [f32]),
    (b, db): (&[f32], &mut [f32]),
) -> Vec<f32> {
    let outputs = b.len();
    let inputs = w.len() / outputs;
    let dy_matrix = Matrix::new(dy, rows, outputs);
    product(dw, Into::Add, Matrix::new(x, rows, inputs).transposed(), dy_matrix);
    sum_rows(db, dy);
    let mut dx = vec![0.0; rows * inputs];
    product(&mut dx, Into::Replace, dy_matrix, Matrix::new(w, inputs, outputs).transposed());
    dx
}

/// Adds all rows of `values` to `sum`.
pub(crate) fn sum_rows(sum: &mut [f32], values: &[f32]) {
    let columns = sum.len();
    super::parallel::reduce(sum, values.len() / columns, |rows, part| {
        add_rows(part, &values[rows.start * columns..rows.end * columns]);
    });
}

super::simd::vectorised! {
    fn add_rows(sum: &mut [f32], rows: &[f32]) {
        for row in rows.chunks_exact(sum.len()) {
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }
}

/// `rows` copies of `b`, each added to its row of `x` where there is one.
pub(crate) fn biased(x: Option<&[f32]>, b: &[f32], rows: usize) -> Vec<f32> {
    let mut out = match x {
        Some(x) => x.to_vec(),
        None => vec![0.0; rows * b.len()],
    };
    super::parallel::rows(&mut out, b.len(), |_, rows| add_to_rows(rows, b));
    out
}

super::simd::vectorised! {
    fn add_to_rows(rows: &mut [f32], b: &[f32]) {
        for row in rows.chunks_exact_mut(b.len()) {
            for (value, b) in row.iter_mut().zip(b) {
                *value += b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| crate::init::unit(crate::init::random(seed, i)) as f32 - 0.5).collect()
    }

    #[test]
    fn products_of_transposed_and_strided_matrices() {
        let (m, n, k) = (7, 5, 9);
        let a = numbers(k * 11, 1);
        let b = numbers(n * k, 2);
        let a_matrix = Matrix::strided(&a[1..], k, m, 11).transposed();
        let b_matrix = Matrix::new(&b, n, k).transposed();
        let mut target = vec![1.0; m * n];
        multiply(&mut target, n, Into::Add, 2.0, a_matrix, b_matrix, true);
        for i in 0..m {
            for j in 0..n {
                let exact: f32 = (0..k).map(|l| a[1 + l * 11 + i] * b[j * k + l]).sum();
                assert!((target[i * n + j] - 1.0 - 2.0 * exact).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_sum_of_no_terms_is_zero() {
        let mut target = vec![f32::NAN; 6];
        multiply(&mut target, 3, Into::Replace, 1.0, Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3), true);
        assert_eq!(target, [0.0; 6]);
    }
}
