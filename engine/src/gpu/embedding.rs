//! Token table plus position table.

use burn_tensor::{Int, Tensor, module};

/// Hidden states [N, T, d] of the ids [N, T], all below V. `table` is [V * d], `positions` [P * d], P >= T.
pub(crate) fn forward(
    ids: Tensor<2, Int>,
    table: Tensor<1>,
    positions: Tensor<1>,
    width: usize,
) -> Tensor<3> {
    let [_, tokens] = ids.dims();
    let hidden = module::embedding(rows(table, width), ids);
    hidden + rows(positions, width).narrow(0, 0, tokens).unsqueeze::<3>()
}

/// The same, each id at a position of its own, [N, T].
pub(crate) fn at(
    ids: Tensor<2, Int>,
    places: Tensor<2, Int>,
    table: Tensor<1>,
    positions: Tensor<1>,
    width: usize,
) -> Tensor<3> {
    module::embedding(rows(table, width), ids) + module::embedding(rows(positions, width), places)
}

fn rows(flat: Tensor<1>, width: usize) -> Tensor<2> {
    let len = flat.dims()[0];
    flat.reshape([len / width, width])
}
