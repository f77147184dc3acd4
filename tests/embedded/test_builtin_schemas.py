from partita.embedded.builtin_schemas import compiled_schemas, generate, schemas


def test_the_file_is_what_the_kubernetes_package_says():
    """If this fails, run `python -m partita.embedded.builtin_schemas`."""
    assert schemas() == generate()


def test_schemas_may_refer_to_themselves():
    crd = compiled_schemas()["CustomResourceDefinition"]
    version = crd.child("spec").child("versions").items
    schema = version.child("schema").child("openAPIV3Schema")
    assert schema.child("properties").child("any") is schema
