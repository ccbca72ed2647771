//! What plans count a part's parameters as, against the shapes that the engine makes of it.

use engine::{gpt2::shapes, parameters::ParameterShape};
use protocol::spec::ModelSpec;

fn count(shapes: &[ParameterShape]) -> u64 {
    shapes.iter().map(|shape| shape.len() as u64).sum()
}

#[test]
fn plans_count_the_parameters_that_the_shapes_have() {
    for tie_embeddings in [false, true] {
        for (vocabulary, positions, width, heads, layers) in
            [(256, 64, 48, 3, 3), (11, 6, 8, 2, 0), (50_257, 1024, 768, 12, 12)]
        {
            let model = ModelSpec { vocabulary, positions, width, heads, layers, tie_embeddings };
            assert_eq!(model.parameters(), count(&shapes::of_model(&model)), "{model:?}");
            assert_eq!(model.layer_parameters(), count(&shapes::layer(&model, 0)), "{model:?}");
            assert_eq!(model.embedding_parameters(), count(&shapes::embedding(&model)), "{model:?}");
            // A tied head's table is the embedding's.
            let head: Vec<_> = shapes::head(&model)
                .into_iter()
                .filter(|shape| !tie_embeddings || shape.name != shapes::TOKEN_TABLE)
                .collect();
            assert_eq!(model.head_parameters(), count(&head), "{model:?}");
        }
    }
}
