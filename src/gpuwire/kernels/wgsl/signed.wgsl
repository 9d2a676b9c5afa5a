// What signed integers need besides. $T is i32 or i64.

fn is_negative_$T(a: $T) -> bool { return a < $T(0); }
fn sign_$T(a: $T) -> $T { return $T(a > $T(0)) - $T(a < $T(0)); }
fn abs_$T(a: $T) -> $T { return select(a, $T(0) - a, a < $T(0)); }

// Toward negative infinity; the smallest integer by -1 wraps to itself. Signs are compared by their
// bits: of an i64 widened from an i32, llvmpipe takes `b < 0` for false.
fn signed_floor_divide_$T(a: $T, b: $T) -> $T {
    if b == $T(-1) { return $T(0) - a; }
    let quotient = a / b;
    let exact = quotient * b == a;
    return select(quotient - $T(1), quotient, exact || (a ^ b) >= $T(0));
}

fn signed_remainder_$T(a: $T, b: $T) -> $T {
    if b == $T(-1) { return $T(0); }
    let rest = a - (a / b) * b;
    return select(rest, rest + b, rest != $T(0) && (rest ^ b) < $T(0));
}

// NumPy refuses negative integer powers; here they are the truncated quotient 1 / base^-exponent.
fn pow_negative_$T(base: $T, exponent: $T) -> $T {
    if base == $T(1) { return $T(1); }
    if base == $T(-1) { return select($T(1), $T(-1), (exponent & $T(1)) == $T(1)); }
    return $T(0);
}
