#!/usr/bin/env python3
"""Writes schemas.json: JSON Schemas as people send them, documents, and whether each document is valid.

The verdicts are those of the Python package jsonschema (draft 2020-12). "written" documents follow our rules about order
and whitespace too, so the grammar must let them through; the others are mutations of them.
Usage: make_schemas.py > schemas.json
"""
import copy
import json
import random
import sys

import jsonschema

EVENT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "date": {"type": "string", "format": "date"},
                   "participants": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "date", "participants"], "additionalProperties": False}

CASES = [
    ("calendar event", EVENT, [
        {"name": "Science Fair", "date": "Friday", "participants": ["Alice", "Bob"]},
        {"name": "", "date": "ß\n\"x\"", "participants": []}]),
    ("chain of thought", {
        "type": "object", "title": "MathReasoning",
        "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}}, "final_answer": {"type": "string"}},
        "required": ["steps", "final_answer"], "additionalProperties": False,
        "$defs": {"Step": {"type": "object", "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}},
                           "required": ["explanation", "output"], "additionalProperties": False}}}, [
        {"steps": [{"explanation": "add", "output": "8x = -30"}], "final_answer": "x = -3.75"},
        {"steps": [], "final_answer": "?"}]),
    ("recursive user interface", {
        "type": "object", "description": "Dynamically generated UI",
        "properties": {
            "type": {"type": "string", "enum": ["div", "button", "header", "section", "field", "form"]},
            "label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}},
            "attributes": {"type": "array", "items": {"$ref": "#/$defs/attribute"}}},
        "required": ["type", "label", "children", "attributes"], "additionalProperties": False,
        "$defs": {"attribute": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                                "required": ["name", "value"], "additionalProperties": False}}}, [
        {"type": "form", "label": "f", "children": [
            {"type": "button", "label": "ok", "children": [], "attributes": [{"name": "id", "value": "1"}]}], "attributes": []}]),
    ("linked list", {
        "type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "required": ["list"], "additionalProperties": False,
        "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": False}}}, [
        {"list": {"value": 1, "next": {"value": -2.5, "next": None}}}, {"list": {"value": 1e-07, "next": None}}]),
    ("any of two objects", {
        "type": "object", "properties": {"item": {"anyOf": [
            {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
             "required": ["name", "age"], "additionalProperties": False},
            {"type": "object", "properties": {"number": {"type": "string"}, "street": {"type": "string"}},
             "required": ["number", "street"], "additionalProperties": False}]}},
        "required": ["item"], "additionalProperties": False}, [
        {"item": {"name": "A", "age": 42}}, {"item": {"number": "12a", "street": "Main"}}]),
    ("same prefix", {"anyOf": [
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"],
         "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "c": {"type": "boolean"}},
         "required": ["a", "c"], "additionalProperties": False},
        {"type": "object", "properties": {"a": {"enum": ["abcdef", "abcxyz"]}}, "required": ["a"],
         "additionalProperties": False}]}, [
        {"a": "longer", "b": 3}, {"a": "abc", "c": True}, {"a": "abcdef"}, {"a": "abcdef", "b": 0}]),
    ("one of, told apart by a constant", {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
         "required": ["kind", "r"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number", "minimum": 0.5}},
         "required": ["kind", "side"], "additionalProperties": False}]}, [
        {"kind": "circle", "r": 0.25}, {"kind": "square", "side": 0.5}, {"kind": "square", "side": 12}]),
    ("optional and additional", {
        "type": "object", "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 999},
                                         "note": {"type": ["string", "null"]}, "naïve": {"type": "boolean"}},
        "required": ["naïve"], "additionalProperties": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}}, [
        {"naïve": True}, {"id": 999, "note": None, "naïve": False, "i": [1], "ids": [], "naïv": [3, 4]},
        {"note": "x", "naïve": True, "": [0]}, {"naïve": True, "naïvé": [7]}]),
    ("counts", {
        "type": "object", "properties": {
            "tags": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 4}, "minItems": 1, "maxItems": 3},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
            "tail": {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4}},
        "required": ["tags", "pair", "tail"], "additionalProperties": False}, [
        {"tags": ["a", "ääää", "😀😀😀😀"], "pair": [1, ""], "tail": [1, True, False, True]},
        {"tags": ["\n\t\"\\"], "pair": [-7, "x"], "tail": [1, False]}]),
    ("numbers in bounds", {
        "type": "object", "properties": {
            "percent": {"type": "integer", "minimum": 0, "maximum": 100},
            "celsius": {"type": "number", "minimum": -273.15, "maximum": 1000.5},
            "open": {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 1},
            "debt": {"type": "integer", "exclusiveMaximum": 0}, "big": {"type": "integer", "minimum": 1000}},
        "required": ["percent", "celsius", "open", "debt", "big"], "additionalProperties": False}, [
        {"percent": 100, "celsius": -273.15, "open": 0.999, "debt": -1, "big": 1000},
        {"percent": 0, "celsius": 1000.5, "open": -0.25, "debt": -12345, "big": 98765}]),
    ("constants of every kind", {
        "type": "array", "items": {"enum": [None, True, 0, -1.5, "", "é", {"a": [1, {"b": None}]}, [], "\u007f\u0001\"/"]},
        "maxItems": 9}, [
        [None, True, 0, -1.5, "", "é", {"a": [1, {"b": None}]}, []], []]),
    ("types in a list", {"type": ["object", "array", "string", "integer", "null"], "items": {"type": "number"},
                         "properties": {"x": {"type": "boolean"}}, "maxLength": 2}, [
        {}, {"x": True}, [1, 2.5], "ab", 7, None]),
    ("a map", {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}}}, [
        {"a": {"b": True}, "c": {}}, {}]),
    ("anything", {}, [{"a": [1, {"b": None}]}, "x", 1, [], None]),
    ("anything under a name", {"type": "object", "properties": {"payload": True}, "required": ["payload"]}, [
        {"payload": {"deep": [[[]]]}}, {"payload": "text"}]),
    ("required beyond the properties", {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b", "a"],
                                        "additionalProperties": {"type": "integer"}}, [{"a": None, "b": 3}]),
    ("one of two types", {"type": "object", "properties": {"v": {"oneOf": [{"type": "string"}, {"type": "integer"},
                                                                           {"type": "array", "items": {"type": "null"}}]}},
                          "required": ["v"], "additionalProperties": False}, [{"v": "s"}, {"v": 5}, {"v": [None, None]}]),
    ("function call arguments", {
        "type": "object", "properties": {
            "location": {"type": "string", "description": "The city"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "default": 1, "examples": [3]}},
        "required": ["location"], "additionalProperties": False}, [
        {"location": "Zürich"}, {"location": "A", "unit": "celsius"}, {"location": "A", "days": 3},
        {"location": "A", "unit": "fahrenheit", "days": -3}]),
    ("names that need escapes", {
        "type": "object", "properties": {"a\"b": {"type": "integer"}, "c\\": {"type": "integer"}, "\n": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"}}, [{"a\"b": 1, "c\\": 2, "\n": 3, "b": True}, {"c": False}]),
]

SPICE = [None, True, False, 0, 1, -1, 3.5, 100, 101, "", "x", "abcd", "abcde", "celsius", [], {}, [1], [1, True], {"a": 1}]


def mutate(value, rng):
    """One random change somewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        value = copy.deepcopy(value)
        key = rng.choice(list(value))
        how = rng.random()
        if how < 0.15:
            del value[key]
        elif how < 0.3:
            value[rng.choice(["a", "x", "note", "id", "zz"])] = rng.choice(SPICE)
        else:
            value[key] = mutate(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        value = copy.deepcopy(value)
        index = rng.randrange(len(value))
        how = rng.random()
        if how < 0.2:
            del value[index]
        elif how < 0.4:
            value.insert(index, value[index])
        else:
            value[index] = mutate(value[index], rng)
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.6:
        return rng.choice([value + 1, value - 1, -value, value * 10, value / 2])
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice([value + "x", value[1:], value * 2, value + "\u00e9"])
    return rng.choice(SPICE)


def main():
    rng = random.Random(4)
    result = []
    for name, schema, documents in CASES:
        validator = jsonschema.Draft202012Validator(schema)
        seen = {}
        for document in documents:
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            assert validator.is_valid(document), (name, text)
            seen[text] = {"text": text, "is_valid": True, "is_written": True}
        for _ in range(150):
            document = rng.choice(documents)
            for _ in range(rng.choice([1, 1, 2, 3])):
                document = mutate(document, rng)
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            seen.setdefault(text, {"text": text, "is_valid": validator.is_valid(document), "is_written": False})
        result.append({"name": name, "schema": schema, "documents": list(seen.values())})
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in result]
    sys.stdout.write("[" + ",\n".join(lines) + "]\n")


main()
