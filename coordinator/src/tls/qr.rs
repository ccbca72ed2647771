//! A link as a picture of characters, for the camera of a phone.

use qrcodegen::{QrCode, QrCodeEcc};

/// Light modules around the code: cameras want four.
const MARGIN: i32 = 4;

/// Two rows of modules to a line of text, light on a dark ground, which is what most terminals have; None for a link that
/// is too long.
pub(crate) fn picture(link: &str) -> Option<String> {
    let code = QrCode::encode_text(link, QrCodeEcc::Low).ok()?;
    let light = |x: i32, y: i32| !code.get_module(x, y);
    let range = -MARGIN..code.size() + MARGIN;
    let mut picture = String::new();
    for y in range.clone().step_by(2) {
        for x in range.clone() {
            // Beyond the margin below is nothing.
            picture.push(match (light(x, y), y + 1 < range.end && light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        picture.push('\n');
    }
    Some(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_the_code_is_in_the_picture() {
        let link = "http://192.168.1.7:8080/trust";
        let code = QrCode::encode_text(link, QrCodeEcc::Low).unwrap();
        let picture = picture(link).unwrap();
        let lines: Vec<Vec<char>> = picture.lines().map(|line| line.chars().collect()).collect();
        let is_light = |x: i32, y: i32| {
            let (column, row) = ((x + MARGIN) as usize, (y + MARGIN) as usize);
            let character = lines[row / 2][column];
            character == '█' || character == if row % 2 == 0 { '▀' } else { '▄' }
        };
        for y in -MARGIN..code.size() + MARGIN {
            for x in -MARGIN..code.size() + MARGIN {
                assert_eq!(is_light(x, y), !code.get_module(x, y), "{x} {y}");
            }
        }
    }
}
