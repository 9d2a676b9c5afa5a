// Complex numbers as pairs. $C is complex64 or complex128, $T the type of a part.

fn multiply_$C(a: vec2<$T>, b: vec2<$T>) -> vec2<$T> {
    return vec2<$T>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// x / 0, written out: Mesa makes 0 of x / f32(false).
fn over_zero_$C(x: $T) -> $T {
    return select(copysign_$T(infinity_$T(), x), nan_$T(), is_zero_$T(x) || is_nan_$T(x));
}

// Smith (1962), which neither over- nor underflows where the quotient does not.
fn divide_$C(a: vec2<$T>, b: vec2<$T>) -> vec2<$T> {
    let br = abs_$T(b.x);
    let bi = abs_$T(b.y);
    if is_zero_$T(br) && is_zero_$T(bi) { return vec2<$T>(over_zero_$C(a.x), over_zero_$C(a.y)); }
    if br >= bi {
        let ratio = b.y / b.x;
        let scale = b.x + b.y * ratio;
        return vec2<$T>(divide_$T(a.x + a.y * ratio, scale), divide_$T(a.y - a.x * ratio, scale));
    }
    let ratio = b.x / b.y;
    let scale = b.y + b.x * ratio;
    return vec2<$T>(divide_$T(a.x * ratio + a.y, scale), divide_$T(a.y * ratio - a.x, scale));
}

fn reciprocal_$C(a: vec2<$T>) -> vec2<$T> {
    if is_zero_$C(a) { return vec2<$T>(nan_$T(), nan_$T()); }
    return divide_$C(vec2<$T>($T(1.0), $T(0.0)), a);
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
    if is_nan_$C(a) && !is_inf_$C(a) { return vec2<$T>(nan_$T(), nan_$T()); }
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

// The cases are those of C17, annex G.
fn exp_$C(a: vec2<$T>) -> vec2<$T> {
    if is_zero_$T(a.y) { return vec2<$T>(exp_$T(a.x), a.y); }
    if is_finite_$T(a.y) {
        if is_nan_$T(a.x) { return vec2<$T>(a.x, a.x); }
        let c = cos_$T(a.y);
        let s = sin_$T(a.y);
        let size = exp_$T(a.x);
        if is_finite_$T(size) { return vec2<$T>(size * c, size * s); }
        let root = exp_$T($T(0.5) * a.x);
        return vec2<$T>(root * c * root, root * s * root);
    }
    if is_inf_$T(a.x) {
        if sign_bit_$T(a.x) { return vec2<$T>($T(0.0), copysign_$T($T(0.0), a.y)); }
        return vec2<$T>(a.x, nan_$T());
    }
    return vec2<$T>(nan_$T(), nan_$T());
}

fn log_$C(a: vec2<$T>) -> vec2<$T> {
    let ax = abs_$T(a.x);
    let ay = abs_$T(a.y);
    let big = maximum_$T(ax, ay);
    var size = $T(0.0);
    if big > $T(0.5) && big < $T(1.5) && is_finite_$C(a) {
        let small = min(ax, ay);
        size = $T(0.5) * log1p_$T((big - $T(1.0)) * (big + $T(1.0)) + small * small);
    } else if big > $T(1e18) && is_finite_$C(a) {
        size = log_$T(hypot_$T($T(0.25) * a.x, $T(0.25) * a.y)) + $T(1.3862943611198906);
    } else {
        size = log_$T(hypot_$T(a.x, a.y));
    }
    return vec2<$T>(size, atan2_$T(a.y, a.x));
}

fn sqrt_$C(a: vec2<$T>) -> vec2<$T> {
    if is_inf_$T(a.y) { return vec2<$T>(infinity_$T(), a.y); }
    if is_nan_$T(a.x) { return vec2<$T>(a.x, a.x); }
    if is_inf_$T(a.x) {
        let rest = select(copysign_$T($T(0.0), a.y), nan_$T(), is_nan_$T(a.y));
        if !sign_bit_$T(a.x) { return vec2<$T>(a.x, rest); }
        return vec2<$T>(abs_$T(rest), copysign_$T(infinity_$T(), a.y));
    }
    if is_nan_$T(a.y) { return vec2<$T>(a.y, a.y); }
    if is_zero_$C(a) { return vec2<$T>($T(0.0), a.y); }
    // Scaled by powers of four, so that the sum neither over- nor underflows.
    let large = maximum_$T(abs_$T(a.x), abs_$T(a.y)) > $T(1e18);
    let down = select($T(16777216.0), $T(0.0625), large);
    let up = select($T(0.000244140625), $T(4.0), large);
    let b = a * down;
    let t = sqrt_$T($T(0.5) * (abs_$T(b.x) + hypot_$T(b.x, b.y)));
    let other = abs_$T(divide_$T(b.y, $T(2.0) * t));
    let root = select(vec2<$T>(t, other), vec2<$T>(other, t), sign_bit_$T(b.x));
    return vec2<$T>(up * root.x, copysign_$T(up * root.y, a.y));
}
