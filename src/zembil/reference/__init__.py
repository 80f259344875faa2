"""The API reference: the OpenAPI document, made of the routes and of the Structs that validate, and the page on it."""
