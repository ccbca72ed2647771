//! Parameters as tensors of burn.

use burn_tensor::{Device, Tensor, TensorData};

use super::{Loaded, ParameterError, Quantity};

/// One parameter, flat; none of its tensors is on an autodiff device.
pub(crate) struct BurnParameter {
    value: Tensor<1>,
    gradient: Option<Tensor<1>>,
    /// AdamW's m and v.
    moments: Option<(Tensor<1>, Tensor<1>)>,
}

/// A parameter under an update: flat tensors of one length.
pub(crate) struct BurnUpdate {
    pub value: Tensor<1>,
    pub gradient: Tensor<1>,
    /// AdamW's m and v; None before the first update.
    pub moments: Option<(Tensor<1>, Tensor<1>)>,
}

impl BurnParameter {
    pub(crate) fn new(loaded: Loaded, device: &Device) -> Self {
        let moments = loaded.moments.map(|(m, v)| (flat(m, device), flat(v, device)));
        BurnParameter { value: flat(loaded.value, device), gradient: None, moments }
    }

    pub(crate) fn value(&self) -> Tensor<1> {
        self.value.clone()
    }

    /// Takes another value; the gradient is dropped, AdamW's state stays.
    pub(crate) fn replace(&mut self, value: Vec<f32>) {
        self.value = flat(value, &self.value.device());
        self.gradient = None;
    }

    pub(crate) fn forget_moments(&mut self) {
        self.moments = None;
    }

    /// Adds a micro-batch's gradient.
    pub(crate) fn accumulate(&mut self, gradient: Tensor<1>) {
        self.gradient = Some(match self.gradient.take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }

    /// The accumulated gradient; None when there is none.
    pub(crate) fn gradient(&self) -> Option<&Tensor<1>> {
        self.gradient.as_ref()
    }

    pub(crate) fn clear_gradient(&mut self) {
        self.gradient = None;
    }

    /// The accumulated gradient, and AdamW's m and v, taken out; the moments are to be given back by
    /// [`BurnParameter::updated`]. None without a gradient.
    pub(crate) fn update(&mut self) -> Option<BurnUpdate> {
        let gradient = self.gradient.take()?;
        Some(BurnUpdate { value: self.value.clone(), gradient, moments: self.moments.take() })
    }

    /// Takes the outcome of an update.
    pub(crate) fn updated(&mut self, value: Tensor<1>, moments: (Tensor<1>, Tensor<1>)) {
        self.value = value;
        self.moments = Some(moments);
    }

    pub(crate) async fn read(&self, quantity: Quantity) -> Result<Vec<f32>, ParameterError> {
        let tensor = match quantity {
            Quantity::Value => Some(&self.value),
            Quantity::Gradient => self.gradient.as_ref(),
            Quantity::FirstMoment => self.moments.as_ref().map(|(m, _)| m),
            Quantity::SecondMoment => self.moments.as_ref().map(|(_, v)| v),
        };
        match tensor {
            Some(tensor) => read(tensor.clone()).await.map_err(ParameterError::Device),
            None => Ok(vec![0.0; self.value.dims()[0]]),
        }
    }

    /// Adds to the gradient.
    pub(crate) fn add_gradient(&mut self, gradient: &[f32]) {
        self.accumulate(flat(gradient.to_vec(), &self.value.device()));
    }
}

/// Reads a tensor of floats, row major. The error is in words.
pub(crate) async fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, String> {
    let data = tensor.into_data_async().await.map_err(|error| error.to_string())?;
    data.try_into_vec::<f32>().map_err(|error| error.to_string())
}

fn flat(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}
