/* See @HEADER@. Compile with -O3; -ffp-contract=fast makes it faster where the processor multiplies and adds at once. */

#include "model.h"

#include "sizes.h"

#include "weights.h"
const char model_id[] = "@ID@";

void model_init(model_state *state) {
    for (int i = 0; i < MODEL_STATES; i++) state->re[i] = state->im[i] = 0.0f;
}

#if CHANNELS
/* A channel has states of its own, counted in units of B, so that C B is their only weight. */
void model_step(model_state *state, const float *u, float *y) {
    for (int k = 0; k < MODEL_OUTPUTS; k++) {
#if HAS_D
        y[k] = D[k] * u[k];
#else
        y[k] = 0.0f;
#endif
    }
    for (int i = 0; i < STATES; i++) {
        const float re = POLE_RE[i] * state->re[i] - POLE_IM[i] * state->im[i] + u[CHANNEL[i]];
        const float im = POLE_RE[i] * state->im[i] + POLE_IM[i] * state->re[i];
        state->re[i] = re;
        state->im[i] = im;
        y[CHANNEL[i]] += C_RE[i] * re - C_IM[i] * im;
    }
}
#else
void model_step(model_state *state, const float *u, float *y) {
    for (int i = 0; i < STATES; i++) {
        float re = POLE_RE[i] * state->re[i] - POLE_IM[i] * state->im[i];
        float im = POLE_RE[i] * state->im[i] + POLE_IM[i] * state->re[i];
        for (int j = 0; j < MODEL_INPUTS; j++) {
            re += B_RE[i * MODEL_INPUTS + j] * u[j];
            im += B_IM[i * MODEL_INPUTS + j] * u[j];
        }
        state->re[i] = re;
        state->im[i] = im;
    }
    for (int k = 0; k < MODEL_OUTPUTS; k++) {
        float sum = 0.0f;
        for (int i = 0; i < STATES; i++)
            sum += C_RE[k * STATES + i] * state->re[i] - C_IM[k * STATES + i] * state->im[i];
#if D_MATRIX
        for (int j = 0; j < MODEL_INPUTS; j++) sum += D[k * MODEL_INPUTS + j] * u[j];
#endif
#if HAS_D && !D_MATRIX
        sum += D[k] * u[k];
#endif
        y[k] = sum;
    }
}
#endif

void model_run(model_state *state, const float *u, size_t length, float *y) {
    for (size_t t = 0; t < length; t++) model_step(state, u + t * MODEL_INPUTS, y + t * MODEL_OUTPUTS);
}
