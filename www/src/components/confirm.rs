//! Asks before something is done that cannot be undone.

use leptos::{html::Dialog, prelude::*};

use crate::text::organizer::{self as text, Order, Question};

/// Shows `question` when there is one; calls `answer` with what was confirmed. The browser gives the focus back to the
/// button that asked; where that button goes away, `answer` moves it.
#[component]
pub(crate) fn Confirm(question: RwSignal<Option<Question>>, answer: Callback<Order>) -> impl IntoView {
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
            answer.run(question.order);
        }
    };
    let text = move |read: fn(&Question) -> &String| {
        move || question.with(|question| question.as_ref().map(|question| read(question).clone()))
    };
    view! {
        <dialog
            class="dialog"
            node_ref=dialog
            aria-labelledby="confirm-title"
            aria-describedby="confirm-detail"
            on:close=move |_| dismiss()
        >
            <h2 id="confirm-title">{text(|question| &question.title)}</h2>
            <p id="confirm-detail">{text(|question| &question.detail)}</p>
            <div class="actions">
                <button type="button" class="button" data-testid="confirm-no" on:click=move |_| dismiss()>
                    {text::CANCEL}
                </button>
                <button type="button" class="button danger" data-testid="confirm-yes" on:click=confirmed>
                    {text(|question| &question.yes)}
                </button>
            </div>
        </dialog>
    }
}
