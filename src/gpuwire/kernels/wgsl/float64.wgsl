// Elementary functions in f64: WGSL has none. Division and square root are correctly rounded on the
// adapters that have f64 (measured on NVIDIA and Mesa), and subnormal numbers are kept. The methods
// are those of float32.wgsl, whose warnings about compilers hold here too.

fn is_nan_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }
fn is_inf_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu; }
fn is_finite_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) < 0x7ff0000000000000lu; }
fn is_zero_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0lu; }
fn sign_bit_f64(x: f64) -> bool { return bitcast<u64>(x) > 0x7ffffffffffffffflu; }
fn nan_f64() -> f64 { return bitcast<f64>(0x7ff8000000000000lu); }
fn infinity_f64() -> f64 { return bitcast<f64>(0x7ff0000000000000lu); }
fn abs_f64(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) & 0x7ffffffffffffffflu); }
fn negate_f64(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) ^ 0x8000000000000000lu); }

fn copysign_f64(magnitude: f64, sign: f64) -> f64 {
    return bitcast<f64>((bitcast<u64>(magnitude) & 0x7ffffffffffffffflu)
        | (bitcast<u64>(sign) & 0x8000000000000000lu));
}

// Twenty-six leading bits: the product of two such numbers is exact.
fn high_f64(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) & 0xfffffffff8000000lu); }

fn cut_f64(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) & 0xfffffffffffffffelu); }

fn divide_f64(a: f64, b: f64) -> f64 { return a / b; }
fn sqrt_f64(x: f64) -> f64 { return sqrt(x); }

// 2^n for -1022 <= n <= 1023.
fn exp2_int_f64(n: i32) -> f64 { return bitcast<f64>(u64(n + 1023) << 52u); }

fn scale_f64(x: f64, n: i32) -> f64 {
    let half = n >> 1u;
    return x * exp2_int_f64(half) * exp2_int_f64(n - half);
}

fn expm1_near_zero_f64(r: f64) -> f64 {
    let p = fma(fma(fma(fma(fma(1.6087177234380782e-10lf, r, 2.0918961837795778e-09lf), r,
        2.5052069594795685e-08lf), r, 2.755726102934377e-07lf), r, 2.7557319248633827e-06lf), r,
        2.4801587338565345e-05lf);
    let q = fma(fma(fma(fma(fma(fma(p, r, 0.00019841269841262761lf), r, 0.0013888888888878269lf), r,
        0.008333333333333333lf), r, 0.04166666666666668lf), r, 0.16666666666666666lf), r, 0.5lf);
    return fma(r * r, q, r);
}

fn reduce_ln2_f64(x: f64, n: f64) -> f64 {
    return fma(-n, 1.9082149292705877e-10lf, fma(-n, 0.6931471803691238lf, x));
}

fn exp_scaled_f64(x: f64, low: f64, shift: i32) -> f64 {
    let bounded = clamp(x, -800.0lf, 800.0lf);
    let n = floor(fma(bounded, 1.4426950408889634lf, 0.5lf));
    let r = reduce_ln2_f64(bounded, n) + low;
    return scale_f64(1.0lf + expm1_near_zero_f64(r), i32(n) + shift);
}

fn exp_f64(x: f64) -> f64 {
    return select(exp_scaled_f64(x, 0.0lf, 0), x, is_nan_f64(x));
}

fn expm1_f64(x: f64) -> f64 {
    if is_nan_f64(x) || abs_f64(x) < 1e-17lf { return x; }
    if x > 40.0lf { return exp_scaled_f64(x, 0.0lf, 0); }
    if x < -40.0lf { return -1.0lf; }
    let n = floor(fma(x, 1.4426950408889634lf, 0.5lf));
    let small = expm1_near_zero_f64(reduce_ln2_f64(x, n));
    let scale = exp2_int_f64(i32(n));
    return fma(scale, small, scale - 1.0lf);
}

struct LogSplit_f64 { k: f64, f: f64 }

fn log_split_f64(x: f64) -> LogSplit_f64 {
    let tiny = bitcast<u64>(x) < 0x0010000000000000lu;
    let bits = bitcast<u64>(select(x, x * 18014398509481984.0lf, tiny));
    let moved = bits + (0x3ff0000000000000lu - 0x3fe6a09e667f3bcdlu);
    let k = i32(moved >> 52u) - select(1023, 1077, tiny);
    let m = bitcast<f64>((moved & 0x000ffffffffffffflu) + 0x3fe6a09e667f3bcdlu);
    return LogSplit_f64(f64(k), m - 1.0lf);
}

// (log(1 + f) - 2 s) / s for s = f / (2 + f), z = s^2.
fn log_series_f64(z: f64) -> f64 {
    return z * fma(log_series_tail_f64(z), z, 0.6666666666666666lf);
}

fn log_series_tail_f64(z: f64) -> f64 {
    return fma(fma(fma(fma(fma(fma(0.13248045201193034lf, z, 0.13250745102160957lf), z,
        0.15387047871250886lf), z, 0.18181777104490482lf), z, 0.2222222262087054lf), z,
        0.2857142856933568lf), z, 0.40000000000005076lf);
}

fn log_tail_f64(f: f64) -> f64 {
    let s = f / (2.0lf + f);
    return s * fma(0.5lf * f, f, log_series_f64(s * s));
}

fn log_is_special_f64(x: f64) -> bool {
    let bits = bitcast<u64>(x);
    return bits == 0lu || bits >= 0x7ff0000000000000lu;
}

fn log_special_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    if is_zero_f64(x) { return negate_f64(infinity_f64()); }
    return select(x, nan_f64(), sign_bit_f64(x));
}

fn log_f64(x: f64) -> f64 {
    if log_is_special_f64(x) { return log_special_f64(x); }
    let p = log_split_f64(x);
    let tail = fma(p.k, 1.9082149292705877e-10lf, log_tail_f64(p.f));
    return fma(p.k, 0.6931471803691238lf, p.f - fma(0.5lf * p.f, p.f, -tail));
}

fn log_scaled_f64(f: f64, factor_high: f64, factor_low: f64) -> f64 {
    let half_square = 0.5lf * f * f;
    let high = high_f64(f - half_square);
    let low = (f - high) - half_square + log_tail_f64(f);
    return fma(high, factor_high, fma(low, factor_high, (low + high) * factor_low));
}

fn log2_f64(x: f64) -> f64 {
    if log_is_special_f64(x) { return log_special_f64(x); }
    let p = log_split_f64(x);
    return p.k + log_scaled_f64(p.f, 1.4426950216293335lf, 1.9259629911266175e-08lf);
}

fn log10_f64(x: f64) -> f64 {
    if log_is_special_f64(x) { return log_special_f64(x); }
    let p = log_split_f64(x);
    let low = fma(p.k, 3.694239077158931e-13lf,
        log_scaled_f64(p.f, 0.4342944771051407lf, 4.798111141615973e-09lf));
    return fma(p.k, 0.30102999566361177lf, low);
}

fn log1p_f64(x: f64) -> f64 {
    if is_nan_f64(x) || abs_f64(x) < 1e-16lf { return x; }
    if x <= -1.0lf || is_inf_f64(x) { return log_special_f64(1.0lf + x); }
    let u = cut_f64(1.0lf + x);
    let lost = select(x - (u - 1.0lf), 1.0lf - (u - x), x > 1.0lf);
    let p = log_split_f64(u);
    let correction = select(lost / u, 0.0lf, x > 1e30lf);
    let tail = fma(p.k, 1.9082149292705877e-10lf, log_tail_f64(p.f)) + correction;
    return fma(p.k, 0.6931471803691238lf, p.f - fma(0.5lf * p.f, p.f, -tail));
}

fn sin_near_zero_f64(r: f64) -> f64 {
    let z = r * r;
    let p = fma(fma(fma(fma(fma(fma(-7.400852325638386e-13lf, z, 1.605450513728424e-10lf), z,
        -2.5052072140682407e-08lf), z, 2.7557319077446084e-06lf), z, -0.0001984126984096676lf), z,
        0.008333333333333044lf), z, -0.16666666666666666lf);
    return fma(r * z, p, r);
}

fn cos_near_zero_f64(r: f64) -> f64 {
    let z = r * r;
    let p = fma(fma(fma(fma(fma(-1.1356705766565964e-11lf, z, 2.0875667719172656e-09lf), z,
        -2.7557313954103105e-07lf), z, 2.480158728814453e-05lf), z, -0.0013888888888872056lf), z,
        0.04166666666666659lf);
    return 1.0lf - fma(-z * z, p, 0.5lf * z);
}

struct Reduced_f64 { quarter: i32, r: f64 }

fn reduce_pi_f64(x: f64) -> Reduced_f64 {
    if abs_f64(x) > 1e7lf { return reduce_pi_large_f64(x); }
    let n = floor(fma(x, 0.6366197723675814lf, 0.5lf));
    // pi/2 in four pieces, the first three of 30 bits: n times each is exact.
    let r = fma(-n, 2.9038559739793605e-28lf, fma(-n, 5.17018297889025e-19lf,
        fma(-n, 9.920935791635221e-10lf, fma(-n, 1.570796325802803lf, x))));
    return Reduced_f64(i32(n), r);
}

fn multiply_high_u64(a: u64, b: u64) -> u64 {
    let al = a & 0xfffffffflu;
    let ah = a >> 32u;
    let bl = b & 0xfffffffflu;
    let bh = b >> 32u;
    let middle = ah * bl + ((al * bl) >> 32u);
    let other = al * bh + (middle & 0xfffffffflu);
    return ah * bh + (middle >> 32u) + (other >> 32u);
}

const TWO_OVER_PI_WIDE = array<u64, 21>(0lu, 0xa2f9836e4e441529lu, 0xfc2757d1f534ddc0lu,
    0xdb6295993c439041lu, 0xfe5163abdebbc561lu, 0xb7246e3a424dd2e0lu, 0x06492eea09d1921clu,
    0xfe1deb1cb129a73elu, 0xe88235f52ebb4484lu, 0xe99c7026b45f7e41lu, 0x3991d639835339f4lu,
    0x9c845f8bbdf9283blu, 0x1ff897ffde05980flu, 0xef2f118b5a0a6d1flu, 0x6d367ecf27cb09b7lu,
    0x4f463f669e5fea2dlu, 0x7527bac7ebe5f17blu, 0x3d0739f78a5292ealu, 0x6bfb5fb11f8d5d08lu,
    0x56033046fc7b6bablu, 0xf0cfbc209af4361dlu);

fn two_over_pi_wide_word(index: u32, shift: u32) -> u64 {
    var words = TWO_OVER_PI_WIDE;
    let next = select(words[index + 1u] >> ((64u - shift) & 63u), 0lu, shift == 0u);
    return (words[index] << shift) | next;
}

fn reduce_pi_large_f64(x: f64) -> Reduced_f64 {
    let bits = bitcast<u64>(x) & 0x7ffffffffffffffflu;
    let m = (bits & 0x000ffffffffffffflu) | 0x0010000000000000lu;
    let start = u32(bits >> 52u) - 1013u;
    let index = start >> 6u;
    let shift = start & 63u;
    let w0 = two_over_pi_wide_word(index, shift);
    let w1 = two_over_pi_wide_word(index + 1u, shift);
    let w2 = two_over_pi_wide_word(index + 2u, shift);
    let p0 = m * w2;
    let c1 = multiply_high_u64(m, w2);
    let p1 = c1 + m * w1;
    let p2 = m * w0 + multiply_high_u64(m, w1) + select(0lu, 1lu, p1 < c1);
    let whole = bitcast<i64>((p2 << 2u) | (p1 >> 62u));
    let rest = (p1 << 2u) | (p0 >> 62u);
    let quarter = i32(p2 >> 62u) + select(0, 1, whole < 0li);
    let fraction = f64(whole) + f64(rest) * 5.421010862427522e-20lf;
    let r = fraction * 8.515303950216386e-20lf;
    let negative = sign_bit_f64(x);
    return Reduced_f64(select(quarter, -quarter, negative), select(r, -r, negative));
}

fn sin_quarter_f64(p: Reduced_f64) -> f64 {
    let value = select(sin_near_zero_f64(p.r), cos_near_zero_f64(p.r), (p.quarter & 1) == 1);
    return select(value, -value, (p.quarter & 2) == 2);
}

fn sin_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    if is_zero_f64(x) { return x; }
    return sin_quarter_f64(reduce_pi_f64(x));
}

fn cos_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    let p = reduce_pi_f64(x);
    return sin_quarter_f64(Reduced_f64(p.quarter + 1, p.r));
}

fn tan_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    if is_zero_f64(x) { return x; }
    let p = reduce_pi_f64(x);
    let s = sin_near_zero_f64(p.r);
    let c = cos_near_zero_f64(p.r);
    return select(s / c, -(c / s), (p.quarter & 1) == 1);
}

fn asin_tail_f64(z: f64) -> f64 {
    let p = fma(fma(fma(fma(fma(fma(0.0328202009891879lf, z, -0.021300200680264902lf), z,
        0.02191671368588516lf), z, 0.0036218118109510923lf), z, 0.01080227874634979lf), z,
        0.011395049393894971lf), z, 0.013981284215622823lf);
    return z * fma(fma(fma(fma(fma(fma(p, z, 0.017351574075793002lf), z, 0.022372217055586882lf), z,
        0.03038194263609547lf), z, 0.04464285717606619lf), z, 0.07499999999969323lf), z,
        0.16666666666666766lf);
}

fn asin_f64(x: f64) -> f64 {
    let a = abs_f64(x);
    if is_nan_f64(x) { return x; }
    if a > 1.0lf { return nan_f64(); }
    if a < 0.5lf { return select(fma(x, asin_tail_f64(x * x), x), x, a < 1e-9lf); }
    let z = 0.5lf - 0.5lf * a;
    let s = sqrt(z);
    let from_top = fma(s, asin_tail_f64(z), s) - 3.061616997868383e-17lf;
    return copysign_f64(1.5707963267948966lf - 2.0lf * from_top, x);
}

fn acos_f64(x: f64) -> f64 {
    let a = abs_f64(x);
    if is_nan_f64(x) { return x; }
    if a > 1.0lf { return nan_f64(); }
    if a < 0.5lf {
        return 1.5707963267948966lf - (fma(x, asin_tail_f64(x * x), -6.123233995736766e-17lf) + x);
    }
    let z = 0.5lf - 0.5lf * a;
    let s = sqrt(z);
    let from_top = fma(s, asin_tail_f64(z), s);
    return select(2.0lf * from_top,
        3.141592653589793lf - 2.0lf * (from_top - 6.123233995736766e-17lf), x < 0.0lf);
}

// atan t for 0 <= t <= 1, from the nearest quarter.
fn atan_to_one_f64(t: f64) -> f64 {
    let n = floor(fma(t, 4.0lf, 0.5lf));
    let c = 0.25lf * n;
    let u = (t - c) / fma(t, c, 1.0lf);
    let z = u * u;
    let p = fma(fma(fma(fma(fma(fma(fma(fma(-0.04109636288846796lf, z, 0.05759410401838183lf), z,
        -0.06659523974322608lf), z, 0.07692061552703226lf), z, -0.09090903931610694lf), z,
        0.11111111046415985lf), z, -0.14285714285258497lf), z, 0.19999999999998433lf), z,
        -0.3333333333333333lf);
    let value = fma(u * z, p, u);
    if n == 0.0lf { return value; }
    if n == 1.0lf { return 0.24497866312686414lf + (value + 1.0698755618734451e-17lf); }
    if n == 2.0lf { return 0.4636476090008061lf + (value + 2.2698777452961687e-17lf); }
    if n == 3.0lf { return 0.6435011087932844lf + (value + 1.5834785051444286e-17lf); }
    return 0.7853981633974483lf + (value + 3.061616997868383e-17lf);
}

fn atan_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    let a = abs_f64(x);
    if a < 1e-9lf { return x; }
    let inverse = atan_to_one_f64(select(a, 1.0lf / a, a > 1.0lf));
    return copysign_f64(
        select(inverse, 1.5707963267948966lf - (inverse - 6.123233995736766e-17lf), a > 1.0lf), x);
}

fn atan2_f64(y: f64, x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    if is_nan_f64(y) { return y; }
    let ax = abs_f64(x);
    let ay = abs_f64(y);
    let steep = ay > ax;
    var t = select(ay, ax, steep) / select(ax, ay, steep);
    if is_zero_f64(y) { t = 0.0lf; }
    if is_inf_f64(x) && is_inf_f64(y) { t = 1.0lf; }
    var angle = atan_to_one_f64(t);
    angle = select(angle, 1.5707963267948966lf - (angle - 6.123233995736766e-17lf), steep);
    angle = select(angle, 3.141592653589793lf - (angle - 1.2246467991473532e-16lf), sign_bit_f64(x));
    return copysign_f64(angle, y);
}

// log x as a sum of 26 leading bits and a rest good to 2^-70, so that y times it still is good to
// a unit in the last place of the power.
fn pow_positive_f64(x: f64, y: f64) -> f64 {
    let p = log_split_f64(x);
    let d = 2.0lf + p.f;
    let dh = high_f64(d);
    let dl = (p.f - (dh - 1.0lf)) + 1.0lf;
    let s = p.f / d;
    let sh = high_f64(s);
    let sl = ((p.f - sh * dh) - sh * dl) / d;
    // z = s^2 and a third of it, each as a high and a low part.
    let z = s * s;
    let zh = high_f64(z);
    let zl = ((sh * sh - zh) + 2.0lf * sh * sl) + sl * sl;
    let th = high_f64(z * 0.3333333333333333lf);
    let tl = ((zh - 3.0lf * th) + zl) * 0.3333333333333333lf;
    let far = s * z * z * log_series_tail_f64(z);
    let whole = p.k * 0.6931471803691238lf;
    let high = high_f64(whole + 2.0lf * (s + s * th));
    let near = ((whole - high) + 2.0lf * sh) + 2.0lf * (sh * th);
    let low = near + (2.0lf * (sl + (sl * th + s * tl)) + fma(p.k, 1.9082149292705877e-10lf, far));
    let yh = high_f64(y);
    let yl = y - yh;
    let product = yh * high;
    let product_low = fma(yl, high, y * low);
    return exp_scaled_f64(product, select(product_low, 0.0lf, abs_f64(product) > 1000.0lf), 0);
}

fn pow_f64(x: f64, y: f64) -> f64 {
    if is_zero_f64(y) || x == 1.0lf { return 1.0lf; }
    if is_nan_f64(x) { return x; }
    if is_nan_f64(y) { return y; }
    let a = abs_f64(x);
    let ay = abs_f64(y);
    let whole = ay >= 9007199254740992.0lf || floor(ay) == ay;
    let odd = whole && ay < 9007199254740992.0lf && floor(ay * 0.5lf) * 2.0lf != ay;
    var value = 0.0lf;
    if is_inf_f64(y) {
        if a == 1.0lf { return 1.0lf; }
        value = select(0.0lf, infinity_f64(), (a > 1.0lf) == (y > 0.0lf));
    } else if is_zero_f64(x) || is_inf_f64(x) {
        value = select(0.0lf, infinity_f64(), is_inf_f64(x) == (y > 0.0lf));
    } else {
        if sign_bit_f64(x) && !whole { return nan_f64(); }
        value = pow_positive_f64(a, y);
    }
    return select(value, negate_f64(value), sign_bit_f64(x) && odd);
}

fn hypot_f64(x: f64, y: f64) -> f64 {
    if is_inf_f64(x) || is_inf_f64(y) { return infinity_f64(); }
    if is_nan_f64(x) { return x; }
    if is_nan_f64(y) { return y; }
    let big = max(abs_f64(x), abs_f64(y));
    let small = min(abs_f64(x), abs_f64(y));
    if is_zero_f64(big) { return big; }
    let n = i32(bitcast<u64>(big) >> 52u) - 1023;
    let b = scale_f64(big, -n);
    let s = scale_f64(small, -n);
    return scale_f64(sqrt(fma(b, b, s * s)), n);
}

fn leading_zeros_u64(x: u64) -> u32 {
    let high = u32(x >> 32u);
    return select(countLeadingZeros(high), 32u + countLeadingZeros(u32(x & 0xfffffffflu)), high == 0u);
}

fn fmod_f64(a: f64, b: f64) -> f64 {
    let ua = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let ub = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if ua >= 0x7ff0000000000000lu || ub > 0x7ff0000000000000lu || ub == 0lu { return nan_f64(); }
    if ua < ub { return a; }
    let ea = max(u32(ua >> 52u), 1u);
    let eb = max(u32(ub >> 52u), 1u);
    let ma = select(ua, (ua & 0x000ffffffffffffflu) | 0x0010000000000000lu, ua >= 0x0010000000000000lu);
    let mb = select(ub, (ub & 0x000ffffffffffffflu) | 0x0010000000000000lu, ub >= 0x0010000000000000lu);
    var rest = ma % mb;
    var left = ea - eb;
    while left > 0u {
        let step = min(left, 11u);
        rest = (rest << step) % mb;
        left = left - step;
    }
    let sign = bitcast<u64>(a) & 0x8000000000000000lu;
    if rest == 0lu { return bitcast<f64>(sign); }
    let zeros = leading_zeros_u64(rest) - 11u;
    if eb > zeros {
        return bitcast<f64>(sign | ((rest << zeros) & 0x000ffffffffffffflu) | (u64(eb - zeros) << 52u));
    }
    return bitcast<f64>(sign | (rest << (eb - 1u)));
}

fn nextafter_f64(x: f64, y: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    if is_nan_f64(y) { return y; }
    if x == y { return y; }
    let bits = bitcast<u64>(x);
    if is_zero_f64(x) { return bitcast<f64>((bitcast<u64>(y) & 0x8000000000000000lu) | 1lu); }
    let away = (x < y) == !sign_bit_f64(x);
    return bitcast<f64>(select(bits - 1lu, bits + 1lu, away));
}

fn equal_f64(x: f64, y: f64) -> bool { return x == y && !is_nan_f64(x) && !is_nan_f64(y); }
fn less_f64(x: f64, y: f64) -> bool { return x < y && !is_nan_f64(x) && !is_nan_f64(y); }
fn less_equal_f64(x: f64, y: f64) -> bool { return x <= y && !is_nan_f64(x) && !is_nan_f64(y); }

fn i32_of_f64(x: f64) -> i32 {
    if is_nan_f64(x) { return 0; }
    return i32(clamp(x, -2147483648.0lf, 2147483647.0lf));
}

fn u32_of_f64(x: f64) -> u32 {
    if is_nan_f64(x) { return 0u; }
    return u32(clamp(x, 0.0lf, 4294967295.0lf));
}

fn i64_of_f64(x: f64) -> i64 {
    if is_nan_f64(x) { return 0li; }
    if x >= 9223372036854775808.0lf { return 9223372036854775807li; }
    if x <= -9223372036854775808.0lf { return -9223372036854775807li - 1li; }
    return i64(x);
}

fn u64_of_f64(x: f64) -> u64 {
    if is_nan_f64(x) || x <= 0.0lf { return 0lu; }
    if x >= 18446744073709551616.0lf { return 0xfffffffffffffffflu; }
    return u64(x);
}
