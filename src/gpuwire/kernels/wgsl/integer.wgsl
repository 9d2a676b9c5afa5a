// Integers. $T is i32, u32, i64 or u64; narrower types are computed in 32 bits and cut afterwards.
// Arithmetic wraps; division by zero gives 0, as NumPy does after its warning.

fn floor_divide_$T(a: $T, b: $T) -> $T {
    if b == $T(0) { return $T(0); }
    return signed_floor_divide_$T(a, b);
}

fn remainder_$T(a: $T, b: $T) -> $T {
    if b == $T(0) { return $T(0); }
    return signed_remainder_$T(a, b);
}

fn pow_$T(base: $T, exponent: $T) -> $T {
    if is_negative_$T(exponent) { return pow_negative_$T(base, exponent); }
    var result = $T(1);
    var square = base;
    var left = exponent;
    while left != $T(0) {
        if (left & $T(1)) == $T(1) { result = result * square; }
        square = square * square;
        left = left >> 1u;
    }
    return result;
}

// A shift by the type's width or more leaves nothing but the sign.
fn shift_left_$T(a: $T, count: $T, width: u32) -> $T {
    if is_negative_$T(count) || count >= $T(width) { return $T(0); }
    return a << u32(count);
}

fn shift_right_$T(a: $T, count: $T, width: u32) -> $T {
    if is_negative_$T(count) || count >= $T(width) { return select($T(0), ~$T(0), is_negative_$T(a)); }
    return a >> u32(count);
}
