#include "catalog/known_models.h"
