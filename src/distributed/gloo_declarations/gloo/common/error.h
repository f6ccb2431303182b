// Declarations in place of Gloo's header: see gloo/algorithm.h.
#pragma once
