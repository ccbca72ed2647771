//! uPlot, which index.html loads as a script of its own: the little of it that the pages use.

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::HtmlElement;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = uPlot)]
    pub(crate) type UPlot;

    #[wasm_bindgen(constructor, js_class = "uPlot", catch)]
    pub(crate) fn new(options: &JsValue, data: &Array, target: &HtmlElement) -> Result<UPlot, JsValue>;

    #[wasm_bindgen(method, js_name = setData)]
    pub(crate) fn set_data(this: &UPlot, data: &Array);

    #[wasm_bindgen(method, js_name = setSize)]
    pub(crate) fn set_size(this: &UPlot, size: &JsValue);

    #[wasm_bindgen(method)]
    pub(crate) fn destroy(this: &UPlot);
}
