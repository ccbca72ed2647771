//! Asks before something is done that cannot be undone.

use leptos::{html::Dialog, prelude::*};

#[derive(Debug, Clone, PartialEq)]
pub struct Question<T> {
    pub title: String,
    pub detail: String,
    /// What the button that does it says.
    pub yes: String,
    pub then: T,
}

/// Shows `question` when there is one; calls `answer` with what was confirmed.
#[component]
pub fn Confirm<T: Clone + Send + Sync + 'static>(
    question: RwSignal<Option<Question<T>>>,
    answer: Callback<T>,
) -> impl IntoView {
    let dialog = NodeRef::<Dialog>::new();
    Effect::new(move |_| {
        let Some(dialog) = dialog.get() else { return };
        if !question.with(Option::is_some) {
            dialog.close();
        } else if !dialog.open() {
            // Fails only for a dialog that is not on the page.
            let _ = dialog.show_modal();
        }
    });
    let dismiss = move || question.set(None);
    let confirmed = move |_| {
        if let Some(question) = question.get_untracked() {
            dismiss();
            answer.run(question.then);
        }
    };
    let text = move |read: fn(&Question<T>) -> &String| {
        move || question.with(|question| question.as_ref().map(|q| read(q).clone()))
    };
    view! {
        <dialog
            class="dialog"
            node_ref=dialog
            aria-labelledby="confirm-title"
            aria-describedby="confirm-detail"
            on:close=move |_| dismiss()
        >
            <h2 id="confirm-title">{text(|q| &q.title)}</h2>
            <p id="confirm-detail">{text(|q| &q.detail)}</p>
            <div class="actions">
                <button type="button" class="button" data-testid="confirm-no" on:click=move |_| dismiss()>
                    "Cancel"
                </button>
                <button type="button" class="button danger" data-testid="confirm-yes" on:click=confirmed>
                    {text(|q| &q.yes)}
                </button>
            </div>
        </dialog>
    }
}
