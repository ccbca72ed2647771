//! One number with its name.

use leptos::prelude::*;

/// The number, its name, and a line below that is kept free while it is empty, so that nothing moves.
#[component]
pub(crate) fn Stat(
    name: &'static str,
    /// For tests.
    id: &'static str,
    #[prop(into)] value: Signal<String>,
    #[prop(into)] note: Signal<String>,
) -> impl IntoView {
    view! {
        <div class="stat">
            <dt>{name}</dt>
            <dd>
                <span class="stat-value" data-testid=id>{value}</span>
                <span class="stat-note">{note}</span>
            </dd>
        </div>
    }
}
