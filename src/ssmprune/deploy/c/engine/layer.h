#ifndef MODEL_H
#define MODEL_H

/* A state space layer, @SYSTEM@, written by ssmprune @VERSION@. From: @ORIGIN@.
   x_k = pole x_{k-1} + B u_k, y_k = @GAIN@Re(C x_k)@PLUS_D@. Inputs are taken as they come, and nothing follows the layer.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   that no other thread is using. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "public_sizes.h"

/* A stream: real and imaginary parts of x, all that is carried from one step to the next. Copy it to start a branch. */
typedef struct {
    float re[MODEL_STATES];
    float im[MODEL_STATES];
} model_state;

/* Start a stream. */
void model_init(model_state *state);

/* The next step: from u, MODEL_INPUTS numbers, to y, MODEL_OUTPUTS numbers in other memory. */
void model_step(model_state *state, const float *u, float *y);

/* The next `length` steps, one after the other in u and in y. */
void model_run(model_state *state, const float *u, size_t length, float *y);

/* The version of ssmprune, the digest above, and where the layer comes from. */
extern const char model_id[];

#ifdef __cplusplus
}
#endif
#endif
