//! One number with its name.

use leptos::prelude::*;

#[component]
pub fn Stat(
    name: &'static str,
    /// For tests.
    id: &'static str,
    #[prop(into)] value: Signal<String>,
    #[prop(optional)] unit: &'static str,
    /// A line below, kept free while it is empty so that nothing moves.
    #[prop(optional, into)]
    note: Option<Signal<String>>,
) -> impl IntoView {
    view! {
        <div class="stat">
            <dt>{name}</dt>
            <dd>
                <span class="stat-value" data-testid=id>{value}</span>
                {(!unit.is_empty()).then(|| view! { " " <span class="stat-unit">{unit}</span> })}
                {note.map(|note| view! { <span class="stat-note">{note}</span> })}
            </dd>
        </div>
    }
}
