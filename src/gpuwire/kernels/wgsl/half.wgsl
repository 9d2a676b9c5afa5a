// float16, computed in f32.

// A register's value rounded to float16. NVIDIA's compiler makes nothing of a pack and an unpack, so
// a zero that it cannot know comes between: every kernel's first parameter is below 2^31.
fn round_to_f16(x: f32) -> f32 {
    return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0)) ^ (params[0][0] >> 31u)).x;
}

fn nextafter_f16(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if is_nan_f32(y) { return y; }
    if x == y { return x; }
    let bits = pack2x16float(vec2<f32>(x, 0.0)) & 0xffffu;
    let tiny = copysign_f32(5.960464477539063e-08, y);
    let away = (x < y) == !sign_bit_f32(x);
    let next = unpack2x16float(select(bits - 1u, bits + 1u, away)).x;
    return select(next, tiny, is_zero_f32(x));
}
