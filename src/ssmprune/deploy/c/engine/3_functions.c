/* ---- Elementwise functions, without branches or calls, so that loops over them become vectors ---- */

/* gelu(x) = max(x, 0) - a p(a)^8 / 2 with a = |x|; p is fitted to an absolute error of less than 1e-6. */
INLINE float gelu(float x) {
    const float size = fabsf(x);
#if EXACT_GELU
    const float a = size < 5.4f ? size : 5.4f;
    float p = -3.19550367e-07f;
    p = p * a + 8.10853635e-06f;
    p = p * a - 6.54094692e-05f;
    p = p * a + 3.63950348e-05f;
    p = p * a + 0.00164242496f;
    p = p * a - 0.000734856061f;
    p = p * a - 0.0348165631f;
    p = p * a - 0.0997353867f;
    p = p * a + 1.0f;
#else
    const float a = size < 5.2f ? size : 5.2f;
    float p = 5.41410884e-07f;
    p = p * a - 1.23850523e-05f;
    p = p * a + 0.000105506297f;
    p = p * a - 0.000413251255f;
    p = p * a + 0.00057882641f;
    p = p * a + 0.00116970297f;
    p = p * a - 0.000370191614f;
    p = p * a - 0.0348924622f;
    p = p * a - 0.0997277275f;
    p = p * a + 1.0f;
#endif
    p *= p;
    p *= p;
    p *= p;
    return 0.5f * (x + size - a * p);
}
#if GATED

/* 1 / (1 + exp(-x)) = 1/2 + x P(x^2) / Q(x^2), fitted to an absolute error below 1e-6. */
INLINE float sigmoid(float x) {
    const float low = x < 17.0f ? x : 17.0f, c = low > -17.0f ? low : -17.0f, t = c * c;
    float above = 1.37687917e-11f;
    above = above * t + 8.25061193e-08f;
    above = above * t + 5.50909208e-05f;
    above = above * t + 0.00837887824f;
    above = above * t + 0.249999985f;
    float below = 3.15375681e-09f;
    below = below * t + 5.21201537e-06f;
    below = below * t + 0.0016244459f;
    below = below * t + 0.116848789f;
    below = below * t + 1.0f;
    return 0.5f + c * above / below;
}
#endif
