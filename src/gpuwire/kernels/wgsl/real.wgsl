// Functions that read the same in every floating type T, once that type's exp, log and their kin are
// there. $T is f32 or f64.

fn maximum_$T(a: $T, b: $T) -> $T {
    return select(select(b, a, a >= b), select(b, a, is_nan_$T(a)), is_nan_$T(a) || is_nan_$T(b));
}

fn minimum_$T(a: $T, b: $T) -> $T {
    return select(select(b, a, a <= b), select(b, a, is_nan_$T(a)), is_nan_$T(a) || is_nan_$T(b));
}

fn sign_$T(x: $T) -> $T {
    if is_nan_$T(x) { return x; }
    if is_zero_$T(x) { return $T(0.0); }
    return select($T(1.0), $T(-1.0), sign_bit_$T(x));
}

fn round_to_even_$T(x: $T) -> $T { return copysign_$T(round(x), x); }

fn sinh_$T(x: $T) -> $T {
    let a = abs_$T(x);
    if is_nan_$T(x) || a < $T(1e-9) { return x; }
    if a > $T(20.0) { return copysign_$T(exp_scaled_$T(a, $T(0.0), -1), x); }
    let t = expm1_$T(a);
    return copysign_$T($T(0.5) * (t + t / (t + $T(1.0))), x);
}

fn cosh_$T(x: $T) -> $T {
    let a = abs_$T(x);
    if is_nan_$T(x) { return x; }
    return exp_scaled_$T(a, $T(0.0), -1) + exp_scaled_$T(-a, $T(0.0), -1);
}

fn tanh_$T(x: $T) -> $T {
    let a = abs_$T(x);
    if is_nan_$T(x) || a < $T(1e-9) { return x; }
    if a > $T(20.0) { return copysign_$T($T(1.0), x); }
    if a > $T(0.5) { return copysign_$T($T(1.0) - $T(2.0) / (exp_$T($T(2.0) * a) + $T(1.0)), x); }
    let t = expm1_$T($T(2.0) * a);
    return copysign_$T(t / (t + $T(2.0)), x);
}

fn asinh_$T(x: $T) -> $T {
    let a = abs_$T(x);
    if !is_finite_$T(x) || a < $T(1e-9) { return x; }
    if a > $T(1e9) { return copysign_$T(log_$T(a) + $T(0.6931471805599453), x); }
    let square = a * a;
    return copysign_$T(log1p_$T(a + square / ($T(1.0) + sqrt_$T($T(1.0) + square))), x);
}

fn acosh_$T(x: $T) -> $T {
    if is_nan_$T(x) { return x; }
    if x < $T(1.0) { return nan_$T(); }
    if x > $T(1e9) { return log_$T(x) + $T(0.6931471805599453); }
    let t = x - $T(1.0);
    return log1p_$T(t + sqrt_$T($T(2.0) * t + t * t));
}

fn atanh_$T(x: $T) -> $T {
    let a = abs_$T(x);
    if is_nan_$T(x) || a < $T(1e-9) { return x; }
    if a > $T(1.0) { return nan_$T(); }
    if a == $T(1.0) { return copysign_$T(infinity_$T(), x); }
    let twice = $T(2.0) * a;
    let u = select(twice / ($T(1.0) - a), twice + twice * a / ($T(1.0) - a), a < $T(0.5));
    return copysign_$T($T(0.5) * log1p_$T(u), x);
}

fn logaddexp_$T(x: $T, y: $T) -> $T {
    if is_nan_$T(x) { return x; }
    if is_nan_$T(y) { return y; }
    if x == y { return x + $T(0.6931471805599453); }
    let apart = abs_$T(x - y);
    return max(x, y) + log1p_$T(exp_$T(-apart));
}

// Python's: the remainder has the divisor's sign.
fn remainder_$T(a: $T, b: $T) -> $T {
    let rest = fmod_$T(a, b);
    if is_nan_$T(rest) { return rest; }
    if is_zero_$T(rest) { return copysign_$T(rest, b); }
    if sign_bit_$T(rest) != sign_bit_$T(b) { return rest + b; }
    return rest;
}

// As NumPy: the quotient of what the remainder leaves, rounded where the division was not exact.
fn floor_divide_$T(a: $T, b: $T) -> $T {
    if is_zero_$T(b) { return a / b; }
    let rest = fmod_$T(a, b);
    if is_nan_$T(rest) { return rest; }
    var quotient = divide_$T(a - rest, b);
    if !is_zero_$T(rest) && sign_bit_$T(rest) != sign_bit_$T(b) { quotient = quotient - $T(1.0); }
    if is_zero_$T(quotient) { return copysign_$T(quotient, a / b); }
    let below = floor(quotient);
    return select(below, below + $T(1.0), quotient - below > $T(0.5));
}
