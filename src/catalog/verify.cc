#include "catalog/verify.h"
