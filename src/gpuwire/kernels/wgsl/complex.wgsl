// Complex numbers as pairs. $C is complex64 or complex128, $T the type of a part.

fn multiply_$C(a: vec2<$T>, b: vec2<$T>) -> vec2<$T> {
    return vec2<$T>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// Smith (1962), which neither over- nor underflows where the quotient does not.
fn divide_$C(a: vec2<$T>, b: vec2<$T>) -> vec2<$T> {
    let br = abs_$T(b.x);
    let bi = abs_$T(b.y);
    if is_zero_$T(br) && is_zero_$T(bi) { return vec2<$T>(a.x / br, a.y / br); }
    if br >= bi {
        let ratio = b.y / b.x;
        let scale = b.x + b.y * ratio;
        return vec2<$T>(divide_$T(a.x + a.y * ratio, scale), divide_$T(a.y - a.x * ratio, scale));
    }
    let ratio = b.x / b.y;
    let scale = b.y + b.x * ratio;
    return vec2<$T>(divide_$T(a.x * ratio + a.y, scale), divide_$T(a.y * ratio - a.x, scale));
}

fn equal_$C(a: vec2<$T>, b: vec2<$T>) -> bool { return equal_$T(a.x, b.x) && equal_$T(a.y, b.y); }
fn abs_$C(a: vec2<$T>) -> $T { return hypot_$T(a.x, a.y); }
fn negate_$C(a: vec2<$T>) -> vec2<$T> { return vec2<$T>(negate_$T(a.x), negate_$T(a.y)); }
fn conj_$C(a: vec2<$T>) -> vec2<$T> { return vec2<$T>(a.x, negate_$T(a.y)); }
fn is_nan_$C(a: vec2<$T>) -> bool { return is_nan_$T(a.x) || is_nan_$T(a.y); }
fn is_inf_$C(a: vec2<$T>) -> bool { return is_inf_$T(a.x) || is_inf_$T(a.y); }
fn is_finite_$C(a: vec2<$T>) -> bool { return is_finite_$T(a.x) && is_finite_$T(a.y); }
fn is_zero_$C(a: vec2<$T>) -> bool { return is_zero_$T(a.x) && is_zero_$T(a.y); }

fn round_to_even_$C(a: vec2<$T>) -> vec2<$T> {
    return vec2<$T>(round_to_even_$T(a.x), round_to_even_$T(a.y));
}

fn sign_$C(a: vec2<$T>) -> vec2<$T> {
    if is_nan_$C(a) { return vec2<$T>(nan_$T(), nan_$T()); }
    if is_zero_$C(a) { return vec2<$T>($T(0.0), $T(0.0)); }
    let ix = is_inf_$T(a.x);
    let iy = is_inf_$T(a.y);
    if ix || iy {
        if ix && iy { return vec2<$T>(nan_$T(), nan_$T()); }
        return vec2<$T>(select($T(0.0), sign_$T(a.x), ix), select($T(0.0), sign_$T(a.y), iy));
    }
    let size = hypot_$T(a.x, a.y);
    return vec2<$T>(divide_$T(a.x, size), divide_$T(a.y, size));
}
