// Elementary functions in f32, by hand: the builtins of real adapters are off by hundreds of units in
// the last place (an H200's sin by 2^-11 absolute, llvmpipe's log near 1 by 250).
//
// What the text must live with, measured on NVIDIA and on Mesa:
// - the compiler reassociates: (a + b) - a becomes b, and x * h + x * (y - h) becomes x * y. Where an
//   exact residual matters to the last bit it is taken in integers;
// - fma may or may not fuse: the products that must be exact are short enough to be exact either way;
// - comparisons may assume that there are no NaNs, and != is an ordered comparison: bits decide;
// - subnormal numbers may be read as zero.
//
// Polynomials are minimax fits (Remez), their coefficients rounded to f32 one after the other.

fn is_nan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn is_finite_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u; }
fn is_zero_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0u; }
fn sign_bit_f32(x: f32) -> bool { return bitcast<u32>(x) > 0x7fffffffu; }
fn nan_f32() -> f32 { return bitcast<f32>(0x7fc00000u); }
fn infinity_f32() -> f32 { return bitcast<f32>(0x7f800000u); }
fn abs_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu); }
fn negate_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u); }

fn copysign_f32(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}

// Twelve leading bits: the product of two such numbers is exact.
fn high_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }

// A neighbour of x that a compiler cannot see to be x.
fn cut_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffffffeu); }

// 2^n for -126 <= n <= 127.
fn exp2_int_f32(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

// x * 2^n for |n| <= 250, in two steps, so that the result may leave the range.
fn scale_f32(x: f32, n: i32) -> f32 {
    let half = n >> 1u;
    return x * exp2_int_f32(half) * exp2_int_f32(n - half);
}

// Adapters divide to within two units (6 / 3 need not be 2): the quotient is put right to the last
// bit where it and the operands are normal numbers. The residual is taken in integers, modulo 2^32,
// since it is small; in floating point a compiler would simplify it away.
fn divide_f32(a: f32, b: f32) -> f32 {
    let q = a / b;
    let ea = (bitcast<u32>(a) >> 23u) & 0xffu;
    let eb = (bitcast<u32>(b) >> 23u) & 0xffu;
    let bits = bitcast<u32>(q);
    let eq = (bits >> 23u) & 0xffu;
    if min(min(ea, eb), eq) == 0u || max(max(ea, eb), eq) == 255u { return q; }
    let ma = (bitcast<u32>(a) & 0x007fffffu) | 0x00800000u;
    let mb = (bitcast<u32>(b) & 0x007fffffu) | 0x00800000u;
    let mq = (bits & 0x007fffffu) | 0x00800000u;
    let twice = 2 * bitcast<i32>((ma << ((ea + 150u - eq - eb) & 31u)) - mq * mb);
    let one = bitcast<i32>(mb);
    let units = i32(twice > one) + i32(twice > 3 * one) - i32(twice < -one) - i32(twice < -3 * one);
    return bitcast<f32>(bits + bitcast<u32>(units));
}

// Put right in the same way.
fn sqrt_f32(x: f32) -> f32 {
    let s = sqrt(x);
    let bits = bitcast<u32>(s);
    let ex = bitcast<u32>(x) >> 23u;
    if ex == 0u || ex >= 255u { return s; }
    let mx = (bitcast<u32>(x) & 0x007fffffu) | 0x00800000u;
    let ms = (bits & 0x007fffffu) | 0x00800000u;
    let residual = bitcast<i32>((mx << ((ex + 150u - 2u * (bits >> 23u)) & 31u)) - ms * ms);
    let units = i32(residual > bitcast<i32>(ms)) - i32(residual <= -bitcast<i32>(ms));
    return bitcast<f32>(bits + bitcast<u32>(units));
}

// e^r - 1 for |r| <= 0.35.
fn expm1_near_zero_f32(r: f32) -> f32 {
    let p = fma(fma(fma(fma(fma(0.00020012397726532072, r, 0.0013935411116108298), r,
        0.008333137258887291), r, 0.041666463017463684), r, 0.1666666716337204), r, 0.5);
    return fma(r * r, p, r);
}

// ln 2 as 10 leading bits and the rest: n times the first is exact.
fn reduce_ln2_f32(x: f32, n: f32) -> f32 {
    return fma(-n, -0.00021219444170128554, fma(-n, 0.693359375, x));
}

// 2^shift * e^(x + low), low small against 1. Correct sign and limits for infinities, not for NaN.
fn exp_scaled_f32(x: f32, low: f32, shift: i32) -> f32 {
    let bounded = clamp(x, -120.0, 120.0);
    let n = floor(fma(bounded, 1.44269504, 0.5));
    let r = reduce_ln2_f32(bounded, n) + low;
    return scale_f32(1.0 + expm1_near_zero_f32(r), i32(n) + shift);
}

// n is the nearest whole number to x / ln 2, give or take 1 / 128: the sum's last six bits are its
// fraction, and cutting them off also hides from the compiler that a sum is taken apart again. Its
// other bits, moved up, are n in the exponent's place. (floor and conversions are slow: 8 times an
// addition on NVIDIA. Softmax over 8,192 x 8,192 with them: 310 us of an H200.)
fn exp_f32(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) > 0x42ae0000u {  // |x| > 87, or NaN
        return select(exp_scaled_f32(x, 0.0, 0), x, is_nan_f32(x));
    }
    let sum = bitcast<u32>(fma(x, 1.44269504, 196608.5)) & 0xffffffc0u;
    let r = reduce_ln2_f32(x, bitcast<f32>(sum) - 196608.0);
    return bitcast<f32>(bitcast<u32>(1.0 + expm1_near_zero_f32(r)) + (sum << 17u));
}

fn expm1_f32(x: f32) -> f32 {
    if is_nan_f32(x) || abs_f32(x) < 1e-7 { return x; }
    if x > 17.5 { return exp_scaled_f32(x, 0.0, 0); }
    if x < -17.5 { return -1.0; }
    let n = floor(fma(x, 1.44269504, 0.5));
    let small = expm1_near_zero_f32(reduce_ln2_f32(x, n));
    let scale = exp2_int_f32(i32(n));
    return fma(scale, small, scale - 1.0);
}

// A positive finite x as 2^k * (1 + f), 1 + f between the roots of 1/2 and 2.
struct LogSplit_f32 { k: f32, f: f32 }

fn log_split_f32(x: f32) -> LogSplit_f32 {
    var bits = bitcast<u32>(x);
    var k = -127;
    if bits < 0x00800000u {
        let zeros = countLeadingZeros(bits) - 8u;
        bits = bits << zeros;
        k = k - i32(zeros);
    }
    let moved = bits + (0x3f800000u - 0x3f3504f3u);
    k = k + i32(moved >> 23u);
    let m = bitcast<f32>((moved & 0x007fffffu) + 0x3f3504f3u);
    return LogSplit_f32(f32(k), m - 1.0);
}

// log(1 + f) - f + f^2/2, for f of a LogSplit.
fn log_tail_f32(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * fma(fma(fma(0.2427884042263031, z, 0.2849879264831543), z,
        0.40000972151756287), z, 0.6666666269302368);
    return s * fma(0.5 * f, f, r);
}

// Whether x is outside (0, inf), where a logarithm has its special value.
fn log_is_special_f32(x: f32) -> bool {
    let bits = bitcast<u32>(x);
    return bits == 0u || bits >= 0x7f800000u;
}

fn log_special_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if is_zero_f32(x) { return negate_f32(infinity_f32()); }
    return select(x, nan_f32(), sign_bit_f32(x));
}

fn log_f32(x: f32) -> f32 {
    if log_is_special_f32(x) { return log_special_f32(x); }
    let p = log_split_f32(x);
    let tail = fma(p.k, -0.00021219444170128554, log_tail_f32(p.f));
    return fma(p.k, 0.693359375, p.f - fma(0.5 * p.f, p.f, -tail));
}

// log(1 + f) times 1/ln(base), the factor given as 12 leading bits and the rest.
fn log_scaled_f32(f: f32, factor_high: f32, factor_low: f32) -> f32 {
    let half_square = 0.5 * f * f;
    let high = high_f32(f - half_square);
    let low = (f - high) - half_square + log_tail_f32(f);
    return fma(high, factor_high, fma(low, factor_high, (low + high) * factor_low));
}

fn log2_f32(x: f32) -> f32 {
    if log_is_special_f32(x) { return log_special_f32(x); }
    let p = log_split_f32(x);
    return p.k + log_scaled_f32(p.f, 1.4423828125, 0.00031222839606925845);
}

fn log10_f32(x: f32) -> f32 {
    if log_is_special_f32(x) { return log_special_f32(x); }
    let p = log_split_f32(x);
    let low = fma(p.k, 4.605039066518657e-06,
        log_scaled_f32(p.f, 0.4342041015625, 9.038033749675378e-05));
    return fma(p.k, 0.301025390625, low);
}

fn log1p_f32(x: f32) -> f32 {
    if is_nan_f32(x) || abs_f32(x) < 5e-8 { return x; }
    if x <= -1.0 || is_inf_f32(x) { return log_special_f32(1.0 + x); }
    let u = cut_f32(1.0 + x);
    let lost = select(x - (u - 1.0), 1.0 - (u - x), x > 1.0);
    let p = log_split_f32(u);
    let correction = select(lost / u, 0.0, x > 1e10);
    let tail = fma(p.k, -0.00021219444170128554, log_tail_f32(p.f)) + correction;
    return fma(p.k, 0.693359375, p.f - fma(0.5 * p.f, p.f, -tail));
}

// sin r and cos r for |r| <= pi/4.
fn sin_near_zero_f32(r: f32) -> f32 {
    let z = r * r;
    let p = fma(fma(fma(2.830801577147213e-06, z, -0.00019852982950396836), z,
        0.008333379402756691), z, -0.1666666716337204);
    return fma(r * z, p, r);
}

fn cos_near_zero_f32(r: f32) -> f32 {
    let z = r * r;
    let p = fma(fma(2.443008270347491e-05, z, -0.0013887297827750444), z, 0.04166664555668831);
    return 1.0 - fma(-z * z, p, 0.5 * z);
}

// x = quarter * pi/2 + r.
struct Reduced_f32 { quarter: i32, r: f32 }

fn reduce_pi_f32(x: f32) -> Reduced_f32 {
    if abs_f32(x) > 8000.0 { return reduce_pi_large_f32(x); }
    let n = floor(fma(x, 0.63661977, 0.5));
    // pi/2 in four pieces, the first three of 11 bits: n times each is exact.
    let r = fma(-n, 2.5633440682570896e-12, fma(-n, 7.549533620476723e-08,
        fma(-n, 0.0004837512969970703, fma(-n, 1.5703125, x))));
    return Reduced_f32(i32(n), r);
}

// The high word of a 32 by 32 bit product.
fn multiply_high_u32(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ah * bl + ((al * bl) >> 16u);
    let other = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (other >> 16u);
}

const TWO_OVER_PI = array<u32, 9>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
    0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u);

fn two_over_pi_word(index: u32, shift: u32) -> u32 {
    var words = TWO_OVER_PI;
    let next = select(words[index + 1u] >> ((32u - shift) & 31u), 0u, shift == 0u);
    return (words[index] << shift) | next;
}

// Payne and Hanek (1983): of the product with 2/pi only the bits that matter modulo 4 are computed,
// in integers.
fn reduce_pi_large_f32(x: f32) -> Reduced_f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let m = (bits & 0x007fffffu) | 0x00800000u;
    let start = (bits >> 23u) - 120u;
    let index = start >> 5u;
    let shift = start & 31u;
    let w0 = two_over_pi_word(index, shift);
    let w1 = two_over_pi_word(index + 1u, shift);
    let w2 = two_over_pi_word(index + 2u, shift);
    let p0 = m * w2;
    let c1 = multiply_high_u32(m, w2);
    let p1 = c1 + m * w1;
    let p2 = m * w0 + multiply_high_u32(m, w1) + select(0u, 1u, p1 < c1);
    // The point lies two bits from the top: a signed word of the fraction, and the next word.
    let whole = bitcast<i32>((p2 << 2u) | (p1 >> 30u));
    let rest = (p1 << 2u) | (p0 >> 30u);
    let quarter = i32(p2 >> 30u) + select(0, 1, whole < 0);
    let fraction = f32(whole) + f32(rest) * 2.3283064365386963e-10;
    let r = fraction * 3.657295198167899e-10;
    let negative = sign_bit_f32(x);
    return Reduced_f32(select(quarter, -quarter, negative), select(r, -r, negative));
}

// sin(r + quarter * pi/2).
fn sin_quarter_f32(p: Reduced_f32) -> f32 {
    let value = select(sin_near_zero_f32(p.r), cos_near_zero_f32(p.r), (p.quarter & 1) == 1);
    return select(value, -value, (p.quarter & 2) == 2);
}

fn sin_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    if is_zero_f32(x) { return x; }
    return sin_quarter_f32(reduce_pi_f32(x));
}

fn cos_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    let p = reduce_pi_f32(x);
    return sin_quarter_f32(Reduced_f32(p.quarter + 1, p.r));
}

fn tan_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    if is_zero_f32(x) { return x; }
    let p = reduce_pi_f32(x);
    let s = sin_near_zero_f32(p.r);
    let c = cos_near_zero_f32(p.r);
    return select(divide_f32(s, c), -divide_f32(c, s), (p.quarter & 1) == 1);
}

// (asin(s) - s) / s for z = s^2 <= 1/4.
fn asin_tail_f32(z: f32) -> f32 {
    let p = fma(fma(fma(fma(fma(0.037827420979738235, z, 0.01423107460141182), z,
        0.031858235597610474), z, 0.04451155290007591), z, 0.07500527799129486), z,
        0.16666659712791443);
    return z * p;
}

fn asin_f32(x: f32) -> f32 {
    let a = abs_f32(x);
    if is_nan_f32(x) { return x; }
    if a > 1.0 { return nan_f32(); }
    if a < 0.5 { return select(fma(x, asin_tail_f32(x * x), x), x, a < 1e-4); }
    let z = 0.5 - 0.5 * a;
    let s = sqrt_f32(z);
    let from_top = fma(s, asin_tail_f32(z), s) + 2.1855695000931213e-08;
    return copysign_f32(1.5707963705062866 - 2.0 * from_top, x);
}

fn acos_f32(x: f32) -> f32 {
    let a = abs_f32(x);
    if is_nan_f32(x) { return x; }
    if a > 1.0 { return nan_f32(); }
    if a < 0.5 {
        return 1.5707963705062866 - (fma(x, asin_tail_f32(x * x), 4.3711390001862426e-08) + x);
    }
    let z = 0.5 - 0.5 * a;
    let s = sqrt_f32(z);
    let from_top = fma(s, asin_tail_f32(z), s);
    return select(2.0 * from_top, 3.1415927410125732 - 2.0 * (from_top + 4.3711390001862426e-08), x < 0.0);
}

// atan t for 0 <= t <= 1, from the nearest half.
fn atan_to_one_f32(t: f32) -> f32 {
    let n = floor(fma(t, 2.0, 0.5));
    let c = 0.5 * n;
    let u = divide_f32(t - c, fma(t, c, 1.0));
    let z = u * u;
    let p = fma(fma(fma(0.09824672341346741, z, -0.14219938218593597), z, 0.1999867856502533), z,
        -0.33333325386047363);
    let value = fma(u * z, p, u);
    if n == 0.0 { return value; }
    if n == 1.0 { return 0.46364760398864746 + (value + 5.012158655276756e-09); }
    return 0.7853981852531433 + (value - 2.1855695000931213e-08);
}

fn atan_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let a = abs_f32(x);
    if a < 1e-4 { return x; }
    let inverse = atan_to_one_f32(select(a, 1.0 / a, a > 1.0));
    return copysign_f32(
        select(inverse, 1.5707963705062866 - (inverse + 4.3711390001862426e-08), a > 1.0), x);
}

fn atan2_f32(y: f32, x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if is_nan_f32(y) { return y; }
    let ax = abs_f32(x);
    let ay = abs_f32(y);
    let steep = ay > ax;
    var t = divide_f32(select(ay, ax, steep), select(ax, ay, steep));
    if is_zero_f32(y) { t = 0.0; }
    if is_inf_f32(x) && is_inf_f32(y) { t = 1.0; }
    var angle = atan_to_one_f32(t);
    angle = select(angle, 1.5707963705062866 - (angle + 4.3711390001862426e-08), steep);
    angle = select(angle, 3.1415927410125732 - (angle + 8.742278000372485e-08), sign_bit_f32(x));
    return copysign_f32(angle, y);
}

// |x|^y for finite x > 0 and finite y: log x in two pieces, the first of 12 bits, times y likewise.
fn pow_positive_f32(x: f32, y: f32) -> f32 {
    let p = log_split_f32(x);
    let d = 2.0 + p.f;
    let dh = high_f32(d);
    let dl = (p.f - (dh - 1.0)) + 1.0;
    let s = p.f / d;
    let sh = high_f32(s);
    let sl = ((p.f - sh * dh) - sh * dl) / d;
    let z = s * s;
    let cubic = s * z * fma(fma(fma(0.2427884042263031, z, 0.2849879264831543), z,
        0.40000972151756287), z, 0.6666666269302368);
    let whole = p.k * 0.693359375;
    let high = high_f32(whole + 2.0 * s);
    let low = ((whole - high) + 2.0 * sh) + fma(p.k, -0.00021219444170128554, 2.0 * sl + cubic);
    let yh = high_f32(y);
    let yl = y - yh;
    let product = yh * high;
    let product_low = fma(yl, high, y * low);
    return exp_scaled_f32(product, select(product_low, 0.0, abs_f32(product) > 200.0), 0);
}

// The cases are those of C17, F.10.4.4.
fn pow_f32(x: f32, y: f32) -> f32 {
    if is_zero_f32(y) || bitcast<u32>(x) == 0x3f800000u { return 1.0; }
    if is_nan_f32(x) { return x; }
    if is_nan_f32(y) { return y; }
    let a = abs_f32(x);
    let ay = abs_f32(y);
    let whole = ay >= 16777216.0 || floor(ay) == ay;
    let odd = whole && ay < 16777216.0 && (u32(ay) & 1u) == 1u;
    var value = 0.0;
    if is_inf_f32(y) {
        if bitcast<u32>(a) == 0x3f800000u { return 1.0; }
        value = select(0.0, infinity_f32(), (a > 1.0) == (y > 0.0));
    } else if is_zero_f32(x) || is_inf_f32(x) {
        value = select(0.0, infinity_f32(), is_inf_f32(x) == (y > 0.0));
    } else {
        if sign_bit_f32(x) && !whole { return nan_f32(); }
        value = pow_positive_f32(a, y);
    }
    return select(value, negate_f32(value), sign_bit_f32(x) && odd);
}

fn hypot_f32(x: f32, y: f32) -> f32 {
    if is_inf_f32(x) || is_inf_f32(y) { return infinity_f32(); }
    if is_nan_f32(x) { return x; }
    if is_nan_f32(y) { return y; }
    let big = max(abs_f32(x), abs_f32(y));
    let small = min(abs_f32(x), abs_f32(y));
    if is_zero_f32(big) { return big; }
    let n = i32(bitcast<u32>(big) >> 23u) - 127;
    let b = scale_f32(big, -n);
    let s = scale_f32(small, -n);
    return scale_f32(sqrt_f32(fma(b, b, s * s)), n);
}

// The remainder of a by b with a's sign, exact: long division, eight bits a step.
fn fmod_f32(a: f32, b: f32) -> f32 {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    if ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0u { return nan_f32(); }
    if ua < ub { return a; }
    let ea = max(ua >> 23u, 1u);
    let eb = max(ub >> 23u, 1u);
    let ma = select(ua, (ua & 0x007fffffu) | 0x00800000u, ua >= 0x00800000u);
    let mb = select(ub, (ub & 0x007fffffu) | 0x00800000u, ub >= 0x00800000u);
    var rest = ma % mb;
    var left = ea - eb;
    while left > 0u {
        let step = min(left, 8u);
        rest = (rest << step) % mb;
        left = left - step;
    }
    let sign = bitcast<u32>(a) & 0x80000000u;
    if rest == 0u { return bitcast<f32>(sign); }
    let zeros = countLeadingZeros(rest) - 8u;
    let normal = (((rest << zeros) & 0x007fffffu) | ((eb - zeros) << 23u));
    return bitcast<f32>(sign | select(rest << (eb - 1u), normal, eb > zeros));
}

fn nextafter_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if is_nan_f32(y) { return y; }
    let bx = bitcast<u32>(x);
    let by = bitcast<u32>(y);
    if bx == by || (is_zero_f32(x) && is_zero_f32(y)) { return y; }
    if is_zero_f32(x) { return bitcast<f32>((by & 0x80000000u) | 1u); }
    // Ordered as integers, negative numbers in reverse.
    let kx = select(bitcast<i32>(bx), bitcast<i32>(0x80000000u - bx), bx > 0x7fffffffu);
    let ky = select(bitcast<i32>(by), bitcast<i32>(0x80000000u - by), by > 0x7fffffffu);
    let away = (kx < ky) == !sign_bit_f32(x);
    return bitcast<f32>(select(bx - 1u, bx + 1u, away));
}

fn equal_f32(x: f32, y: f32) -> bool { return x == y && !is_nan_f32(x) && !is_nan_f32(y); }
fn less_f32(x: f32, y: f32) -> bool { return x < y && !is_nan_f32(x) && !is_nan_f32(y); }
fn less_equal_f32(x: f32, y: f32) -> bool { return x <= y && !is_nan_f32(x) && !is_nan_f32(y); }

fn i32_of_f32(x: f32) -> i32 {
    if is_nan_f32(x) { return 0; }
    if x >= 2147483648.0 { return 2147483647; }
    if x <= -2147483648.0 { return -2147483647 - 1; }
    return i32(x);
}

fn u32_of_f32(x: f32) -> u32 {
    if is_nan_f32(x) || x <= 0.0 { return 0u; }
    return select(u32(x), 0xffffffffu, x >= 4294967296.0);
}

fn i64_of_f32(x: f32) -> i64 {
    if is_nan_f32(x) { return 0li; }
    if x >= 9223372036854775808.0 { return 9223372036854775807li; }
    if x <= -9223372036854775808.0 { return -9223372036854775807li - 1li; }
    return i64(x);
}

fn u64_of_f32(x: f32) -> u64 {
    if is_nan_f32(x) || x <= 0.0 { return 0lu; }
    if x >= 18446744073709551616.0 { return 0xfffffffffffffffflu; }
    return u64(x);
}
