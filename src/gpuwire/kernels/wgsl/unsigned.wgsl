// What unsigned integers need besides. $T is u32 or u64.

fn is_negative_$T(a: $T) -> bool { return false; }
fn sign_$T(a: $T) -> $T { return $T(a > $T(0)); }
fn abs_$T(a: $T) -> $T { return a; }
fn signed_floor_divide_$T(a: $T, b: $T) -> $T { return a / b; }
fn signed_remainder_$T(a: $T, b: $T) -> $T { return a % b; }
fn pow_negative_$T(base: $T, exponent: $T) -> $T { return $T(0); }
