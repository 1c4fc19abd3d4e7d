"""A layer's output as a linear regression on its states; numpy only.

`weights` writes the readout C as regression weights and back, `moments` holds the second moments of the regressors
(of data, or of white noise in closed form), `elimination` removes regressors one after the other with exact updates,
`least_squares` lets the states that stay take over what the others carried, `shrinkage` only as far as data that were
not fitted say.

The regressors of a state are its real and imaginary part in each direction, z = [Re x, Im x, Re x', Im x'], and the
output is Wᵀz with W = gain [Re C, -Im C, Re C', -Im C']. A MIMO layer is one regression problem with many outputs, a
multi-SISO layer is one problem with one output for every channel. All problems stand side by side, laid out as in
`layout`: z has the shape (channels, slots, parts).
"""
